#include "record/trace_writer.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace gpupool::internal {
namespace {

/// What readers of the format take (tools/trace/trace_builder.h).
constexpr std::uint32_t kMaxTraceStreams = 4096;
/// Kept free for the last remark.
constexpr std::uint64_t kEndBytes = 192;

/// As the inside of a JSON string: what would need an escape is of no interest here.
std::string plain(std::string_view text) {
  std::string result(text);
  std::replace_if(
      result.begin(), result.end(),
      [](char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; }, '?');
  return result;
}

/// A word and numbers, parted by spaces.
class Line {
 public:
  explicit Line(std::string_view word) { end_ = std::copy(word.begin(), word.end(), end_); }
  Line& operator<<(std::string_view word) {
    end_ = std::copy(word.begin(), word.end(), end_);
    return *this;
  }
  Line& operator<<(std::uint64_t number) {
    *end_++ = ' ';
    end_ = std::to_chars(end_, text_.data() + text_.size(), number).ptr;
    return *this;
  }
  std::string_view finish() {
    *end_++ = '\n';
    return {text_.data(), static_cast<std::size_t>(end_ - text_.data())};
  }

 private:
  std::array<char, 128> text_;  // room for four numbers of 20 digits and a short word
  char* end_ = text_.data();
};

}  // namespace

Result<void, Status> TraceWriter::create(const std::string& path, std::uint64_t max_file_bytes,
                                         const RecordSource& source) {
  max_file_bytes_ = max_file_bytes;
  if (auto created = file_.create(path); !created.ok()) return created;
  file_.append("# gpupool allocation trace, version 1\n");
  file_.append("# recorded by Pool::record; to play it: gpupool replay FILE\n");
  file_.append("# {\"source\": \"gpupool\", \"pool\": \"" + plain(source.pool) +
               "\", \"device\": \"" + plain(source.device) +
               "\", \"limit_bytes\": " + std::to_string(source.limit_bytes) + "}\n");
  // At once, so that a disk without any room is known now.
  file_.flush();
  if (file_.has_failed()) return file_.close();
  return {};
}

void TraceWriter::begin(const std::vector<RecordEvent>& live, std::uint64_t time_ns) {
  start_ns_ = time_ns;
  live_.reserve(live.size());
  append((Line("# blocks that were live when the recording began:") << live.size()).finish());
  for (const RecordEvent& event : live) {
    if (!is_full() && write_allocation(event)) {
      ++report_.live_at_start;
    } else {
      ++report_.left_out;
    }
  }
  report_.allocations = 0;
}

void TraceWriter::write(const RecordEvent& event) {
  bool is_written = false;
  if (!is_full()) {
    switch (event.kind) {
      case RecordEventKind::allocate: is_written = write_allocation(event); break;
      case RecordEventKind::free: is_written = write_free(event); break;
      case RecordEventKind::fail: is_written = write_failure(event); break;
    }
  }
  if (!is_written) ++report_.left_out;
}

bool TraceWriter::append(std::string_view line) {
  const bool has_room = file_.bytes() + line.size() + kEndBytes <= max_file_bytes_;
  if (has_room && !file_.has_failed()) {
    file_.append(line);
    return true;
  }
  is_full_.store(true, std::memory_order_relaxed);
  return false;
}

std::uint64_t TraceWriter::time_us(const RecordEvent& event) const {
  constexpr std::uint64_t kNsPerUs = 1000;
  // A clock that a test turns back makes no time that is below zero.
  return std::max(last_us_, (std::max(event.time_ns, start_ns_) - start_ns_) / kNsPerUs);
}

bool TraceWriter::write_allocation(const RecordEvent& event) {
  if (event.stream >= kMaxTraceStreams) return false;
  const std::uint64_t now_us = time_us(event);
  const auto [block, is_new] = live_.try_emplace(event.address, Block{next_id_, event.stream});
  if (!is_new) return false;
  Line line("a");
  line << next_id_ << event.bytes << event.stream << now_us - last_us_;
  if (!append(line.finish())) return false;
  ++next_id_;
  last_us_ = now_us;
  ++report_.allocations;
  return true;
}

bool TraceWriter::write_free(const RecordEvent& event) {
  const auto block = live_.find(event.address);
  if (block == live_.end()) return false;
  const std::uint64_t now_us = time_us(event);
  Line line("f");
  line << block->second.id << now_us - last_us_;
  if (event.stream != block->second.stream) {
    if (event.stream >= kMaxTraceStreams) return false;
    line << event.stream;
  }
  if (!append(line.finish())) return false;
  live_.erase(block);
  last_us_ = now_us;
  ++report_.frees;
  return true;
}

bool TraceWriter::write_failure(const RecordEvent& event) {
  // No event of the format stands for it; nobody holds a block.
  if (!append((Line("# failed request, bytes:") << event.bytes).finish())) return false;
  ++report_.failed_requests;
  return true;
}

void TraceWriter::flush() {
  file_.flush();
  if (file_.has_failed()) is_full_.store(true, std::memory_order_relaxed);
}

Result<RecordReport, Status> TraceWriter::finish(std::uint64_t end_ns, std::uint64_t missed) {
  report_.left_out += missed;
  file_.append((Line("# end;") << report_.allocations + report_.frees << " operations,"
                               << report_.left_out << " left out")
                   .finish());
  auto closed = file_.close();
  if (!closed.ok()) {
    const std::uint64_t left_out = report_.left_out + file_.lost_lines();
    return Status{closed.error().code, closed.error().message + ", " + std::to_string(left_out) +
                                           " operations left out"};
  }
  report_.file_bytes = file_.bytes();
  report_.duration_ns = end_ns - std::min(start_ns_, end_ns);
  return report_;
}

}  // namespace gpupool::internal
