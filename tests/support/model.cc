#include "tests/support/model.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace gpupool::test {
namespace {

std::string range_text(std::uint64_t address, std::uint64_t bytes) {
  return "[" + std::to_string(address) + ", +" + std::to_string(bytes) + ")";
}

}  // namespace

Model::DoneFlag Model::give_work(StreamKey stream, std::uint64_t address, std::uint64_t bytes) {
  unfinished_.erase(std::remove_if(unfinished_.begin(), unfinished_.end(),
                                   [](const Work& work) { return *work.is_done; }),
                    unfinished_.end());
  Work work{stream, ++given_[stream], address, address + bytes, std::make_shared<bool>(false)};
  unfinished_.push_back(work);
  return work.is_done;
}

void Model::order(StreamKey later, StreamKey earlier) {
  if (later == earlier) return;
  Positions& seen = seen_[later];
  for (const auto& [stream, position] : seen_[earlier]) {
    seen[stream] = std::max(seen[stream], position);
  }
  seen[earlier] = given_[earlier];
}

std::optional<std::string> Model::find_danger(StreamKey stream, std::uint64_t address,
                                              std::uint64_t bytes) {
  for (const Work& work : unfinished_) {
    if (*work.is_done || work.stream == stream) continue;
    if (work.end <= address || address + bytes <= work.begin) continue;
    if (seen_[stream][work.stream] >= work.position) continue;
    return "memory " + range_text(address, bytes) + " was given to stream " +
           std::to_string(stream) + " while work " + std::to_string(work.position) + " of stream " +
           std::to_string(work.stream) + " on " + range_text(work.begin, work.end - work.begin) +
           " is unfinished";
  }
  return std::nullopt;
}

std::optional<std::string> Model::add_block(std::uint64_t address, std::uint64_t bytes,
                                            std::uint64_t alignment, StreamKey stream,
                                            std::uint8_t tag) {
  ++requests_;
  requested_total_ += bytes;
  live_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  if (tag < kMaxTags) tag_bytes_[tag] += bytes;

  const std::string text = "block " + range_text(address, bytes);
  const auto [entry, is_new] = blocks_.emplace(address, Block{bytes, tag});
  if (!is_new) return text + " starts where a live block starts";
  if (const auto after = std::next(entry);
      after != blocks_.end() && after->first - address < bytes) {
    return text + " overlaps the live block " + range_text(after->first, after->second.bytes);
  }
  if (entry != blocks_.begin()) {
    const auto before = std::prev(entry);
    if (address - before->first < before->second.bytes) {
      return text + " overlaps the live block " + range_text(before->first, before->second.bytes);
    }
  }
  if (address % std::max(alignment, std::uint64_t{512}) != 0) {
    return text + " is not aligned to " + std::to_string(alignment);
  }
  return knows_order_ ? find_danger(stream, address, bytes) : std::nullopt;
}

void Model::remove_block(std::uint64_t address) {
  const Block block = blocks_.at(address);
  blocks_.erase(address);
  ++frees_;
  live_bytes_ -= block.bytes;
  if (block.tag < kMaxTags) tag_bytes_[block.tag] -= block.bytes;
}

std::optional<std::uint64_t> Model::find_block(std::uint64_t address) const {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return std::nullopt;
  const auto& [start, block] = *std::prev(after);
  if (address - start >= block.bytes) return std::nullopt;
  return start;
}

std::optional<std::string> Model::compare(const StatsV1& stats) const {
  std::optional<std::string> wrong;
  const auto expect = [&](const std::string& name, std::uint64_t is, std::uint64_t must) {
    if (is == must || wrong) return;
    wrong = name + " is " + std::to_string(is) + ", must be " + std::to_string(must);
  };
  const auto sum = [](const auto& values) {
    return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
  };
  expect("requests", stats.requests, requests_);
  expect("hits + misses", stats.hits + stats.misses, requests_);
  expect("failures", stats.failures, failures_);
  expect("frees", stats.frees, frees_);
  expect("live_blocks", stats.live_blocks, blocks_.size());
  expect("live_requested_bytes", stats.live_requested_bytes, live_bytes_);
  expect("peak_requested_bytes", stats.peak_requested_bytes, peak_bytes_);
  expect("requested_bytes_total", stats.requested_bytes_total, requested_total_);
  expect("sum of hits_by_tier", sum(stats.hits_by_tier), stats.hits);
  expect("sum of misses_by_reason", sum(stats.misses_by_reason), stats.misses);
  expect("sum of failures_by_reason", sum(stats.failures_by_reason), stats.failures);
  expect("sum of fallbacks_by_reason", sum(stats.fallbacks_by_reason), stats.fallbacks);
  expect("sum of requests_by_size", sum(stats.requests_by_size), stats.requests);
  for (std::size_t i = 0; i < tag_bytes_.size(); ++i) {
    expect("tag_live_bytes[" + std::to_string(i) + "]", stats.tag_live_bytes[i], tag_bytes_[i]);
  }
  for (std::size_t i = 0; i < misuses_.size(); ++i) {
    expect(std::string("misuses of ") + to_string(static_cast<Misuse>(i)), stats.misuses[i],
           misuses_[i]);
  }
  return wrong;
}

}  // namespace gpupool::test
