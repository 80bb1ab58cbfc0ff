#include "exporter/http/snapshot_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "exporter/http/json_writer.h"
#include "gpupool/options.h"
#include "gpupool/stats.h"

namespace gpupool::internal {
namespace {

constexpr std::string_view kSnapshotSchema = "gpupool.snapshot";
constexpr int kSnapshotVersion = 1;
constexpr std::uint64_t kPageBytes = kMinCapacityBytes;
constexpr std::size_t kStateCount = 4;

/// As text: a number in JSON is exact up to 2^53 alone.
std::string hex_text(std::uint64_t number) {
  std::array<char, 16> digits;
  char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
  return "0x" + std::string(digits.data(), end);
}

/// Blocks as columns of numbers, each ready to be put between brackets or quotes.
class Columns {
 public:
  void add(const BlockInfo& info, std::uint64_t offset, std::size_t tag, std::size_t stream,
           std::uint64_t age_ms) {
    append(offset_, offset);
    append(bytes_, info.bytes);
    append(requested_, info.requested_bytes);
    append(tag_, tag);
    append(stream_, stream);
    append(age_ms_, age_ms);
    state_ += static_cast<char>('0' + static_cast<int>(info.state));
    tier_ += static_cast<char>('0' + static_cast<int>(info.tier));
  }
  std::size_t size() const noexcept { return state_.size(); }
  /// So that text does not move while it grows.
  void reserve(std::size_t blocks) {
    constexpr std::size_t kOffsetBytes = 14;
    constexpr std::size_t kSizeBytes = 8;
    constexpr std::size_t kIndexBytes = 3;
    offset_.reserve(blocks * kOffsetBytes);
    for (std::string* column : {&bytes_, &requested_, &age_ms_}) {
      column->reserve(blocks * kSizeBytes);
    }
    for (std::string* column : {&tag_, &stream_}) column->reserve(blocks * kIndexBytes);
    for (std::string* column : {&state_, &tier_}) column->reserve(blocks);
  }
  std::size_t text_bytes() const noexcept {
    return offset_.size() + bytes_.size() + requested_.size() + state_.size() + tier_.size() +
           tag_.size() + stream_.size() + age_ms_.size();
  }

  void write(JsonWriter& json, std::string_view key, std::string_view offset_key,
             std::uint64_t count) const {
    json.begin_object(key);
    json.field("count", count);
    json.field("shown", size());
    if (!offset_key.empty()) write_list(json, offset_key, offset_);
    write_list(json, "bytes", bytes_);
    write_list(json, "requested", requested_);
    json.field("state", state_);
    json.field("tier", tier_);
    write_list(json, "tag", tag_);
    write_list(json, "stream", stream_);
    write_list(json, "age_ms", age_ms_);
    json.end_object();
  }

 private:
  template <class Number>
  static void append(std::string& column, Number value) {
    if (!column.empty()) column += ',';
    append_number(column, value);
  }
  static void write_list(JsonWriter& json, std::string_view key, const std::string& column) {
    json.raw_array(key, column);
  }

  std::string offset_;
  std::string bytes_;
  std::string requested_;
  std::string state_;
  std::string tier_;
  std::string tag_;
  std::string stream_;
  std::string age_ms_;
};

/// Pages of 2 MiB that blocks lie in, and how many of them have nothing that is in use. Blocks come
/// by rising address.
class PageCount {
 public:
  void add(std::uint64_t offset, std::uint64_t bytes, bool is_used) {
    const std::uint64_t first = offset / kPageBytes;
    const std::uint64_t last = (offset + bytes - 1) / kPageBytes;
    if (mapped_ == 0 || first != page_) {
      open(first);
    }
    is_page_used_ = is_page_used_ || is_used;
    if (last == first) return;
    const std::uint64_t between = last - first - 1;
    mapped_ += between;
    used_ += is_used ? between : 0;
    open(last);
    is_page_used_ = is_used;
  }
  std::uint64_t mapped() const noexcept { return mapped_; }
  std::uint64_t empty() const noexcept { return mapped_ - used_ - (is_page_used_ ? 1 : 0); }

 private:
  void open(std::uint64_t page) {
    used_ += is_page_used_ ? 1 : 0;
    is_page_used_ = false;
    page_ = page;
    ++mapped_;
  }

  std::uint64_t page_ = 0;
  bool is_page_used_ = false;
  std::uint64_t mapped_ = 0;
  std::uint64_t used_ = 0;  // but the page that is open
};

struct Sum {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
  void add(std::uint64_t more) {
    ++blocks;
    bytes += more;
  }
};

struct StreamSums {
  std::uint64_t id = 0;
  std::optional<std::uint64_t> handle;  // none: it has ended
  std::array<Sum, kStateCount> by_state;
};

class MapWriter {
 public:
  MapWriter(const StatsV1& stats, std::size_t tag_count) : stats_(stats), tags_(tag_count + 1) {
    // Free pieces are about half as many again.
    const std::size_t pieces = stats.live_blocks + stats.live_blocks / 2;
    blocks_.reserve(std::min(pieces, kMaxBlocksShown));
  }

  void add(const BlockInfo& info);
  void write(JsonWriter& json, const Pool& pool, bool with_details) const;
  std::size_t text_bytes() const noexcept { return blocks_.text_bytes() + fallbacks_.text_bytes(); }

 private:
  std::size_t stream_index(const BlockInfo& info);
  void write_tags(JsonWriter& json, const Pool& pool, bool with_details) const;
  void write_streams(JsonWriter& json, bool with_details) const;
  void write_states(JsonWriter& json) const;
  void write_runs(JsonWriter& json) const;

  const StatsV1& stats_;
  std::uint64_t base_ = 0;
  std::uint64_t arena_blocks_ = 0;
  std::uint64_t fallback_blocks_ = 0;
  Columns blocks_;
  Columns fallbacks_;
  PageCount pages_;
  std::array<Sum, kStateCount> states_;
  std::vector<Sum> tags_;  // the last: without
  std::vector<StreamSums> streams_;
  std::unordered_map<std::uint64_t, std::size_t> stream_places_;
  std::size_t last_stream_ = 0;
};

std::size_t MapWriter::stream_index(const BlockInfo& info) {
  const std::uint64_t id = info.stream_id;
  // Neighbours are mostly of one stream.
  if (last_stream_ < streams_.size() && streams_[last_stream_].id == id) return last_stream_;
  const auto [place, is_new] = stream_places_.try_emplace(id, streams_.size());
  if (is_new) streams_.push_back({.id = id, .handle = info.stream_handle, .by_state = {}});
  last_stream_ = place->second;
  return last_stream_;
}

void MapWriter::add(const BlockInfo& info) {
  if (arena_blocks_ == 0 && !info.is_fallback) base_ = info.address / kPageBytes * kPageBytes;
  const std::uint64_t offset = info.is_fallback ? info.address : info.address - base_;
  const auto state = static_cast<std::size_t>(info.state);
  const bool is_live = info.state == BlockState::live;
  const std::size_t tag = std::min<std::size_t>(info.tag.index(), tags_.size() - 1);
  const std::size_t stream = stream_index(info);
  const bool has_time = is_live || info.state == BlockState::cached;
  const std::uint64_t age_ns = has_time ? stats_.time_ns - std::min(stats_.time_ns, info.tick) : 0;
  states_[state].add(info.bytes);
  streams_[stream].by_state[state].add(info.bytes);
  if (is_live) tags_[tag].add(info.requested_bytes);
  if (!info.is_fallback) pages_.add(offset, info.bytes, info.state != BlockState::free);
  ++(info.is_fallback ? fallback_blocks_ : arena_blocks_);
  Columns& columns = info.is_fallback ? fallbacks_ : blocks_;
  if (columns.size() < kMaxBlocksShown) {
    columns.add(info, offset, tag, stream, age_ns / kNanosecondsPerMillisecond);
  }
}

void MapWriter::write_tags(JsonWriter& json, const Pool& pool, bool with_details) const {
  json.begin_array("tags");
  for (std::size_t i = 0; i < tags_.size(); ++i) {
    json.begin_object();
    const bool is_named = i + 1 < tags_.size();
    if (with_details) json.field("name", is_named ? pool.tag_names()[i] : "untagged");
    json.field("live_blocks", tags_[i].blocks);
    json.field("live_requested_bytes", tags_[i].bytes);
    json.end_object();
  }
  json.end_array();
}

void MapWriter::write_streams(JsonWriter& json, bool with_details) const {
  json.begin_array("streams");
  for (const StreamSums& stream : streams_) {
    json.begin_object();
    json.field("id", stream.id);
    // In a debugger and a profiler it is the handle that names a stream.
    if (with_details && stream.handle.has_value()) json.field("handle", hex_text(*stream.handle));
    for (std::size_t i = 0; i < kStateCount; ++i) {
      json.field(std::string(to_string(static_cast<BlockState>(i))) + "_bytes",
                 stream.by_state[i].bytes);
    }
    json.end_object();
  }
  json.end_array();
}

void MapWriter::write_states(JsonWriter& json) const {
  json.begin_array("states");
  for (std::size_t i = 0; i < kStateCount; ++i) {
    json.begin_object();
    json.field("name", to_string(static_cast<BlockState>(i)));
    json.field("blocks", states_[i].blocks);
    json.field("bytes", states_[i].bytes);
    json.end_object();
  }
  json.end_array();
  json.begin_array("tiers");
  for (std::size_t i = 0; i < kTierCount; ++i) json.item(to_string(static_cast<Tier>(i)));
  json.end_array();
}

void MapWriter::write_runs(JsonWriter& json) const {
  const auto list = [&](std::string_view key, const auto& counts) {
    json.begin_array(key);
    for (const std::uint64_t count : counts) json.item(count);
    json.end_array();
  };
  json.begin_object("runs");
  json.field("count", stats_.runs);
  json.field("chunks", stats_.chunks);
  json.field("slabs", stats_.slabs);
  list("free_by_log2", stats_.free_runs_by_log2);
  list("free_bytes_by_log2", stats_.free_run_bytes_by_log2);
  list("free_buddies_by_log2", stats_.free_buddies_by_log2);
  json.end_object();
}

void MapWriter::write(JsonWriter& json, const Pool& pool, bool with_details) const {
  json.begin_object("arena");
  if (with_details) json.field("base_address", base_);
  json.field("backing", to_string(static_cast<Backing>(stats_.backing)));
  json.field("ranges", stats_.address_ranges);
  json.field("range_bytes", stats_.address_range_bytes);
  json.field("range_used_bytes", stats_.address_range_used_bytes);
  json.field("held_bytes", stats_.held_bytes);
  json.field("limit_in_force_bytes", stats_.limit_in_force_bytes);
  json.field("largest_free_block_bytes", stats_.largest_free_block_bytes);
  json.field("largest_satisfiable_bytes", stats_.largest_satisfiable_bytes);
  json.field("fragmentation_ratio", stats_.fragmentation_ratio);
  json.end_object();
  json.begin_object("pages");
  json.field("bytes", kPageBytes);
  json.field("mapped", pages_.mapped());
  json.field("empty", pages_.empty());
  json.end_object();
  write_runs(json);
  write_states(json);
  write_tags(json, pool, with_details);
  write_streams(json, with_details);
  blocks_.write(json, "blocks", "offset", arena_blocks_);
  // Outside the arena there is nothing to be an offset from.
  fallbacks_.write(json, "fallbacks", with_details ? "address" : "", fallback_blocks_);
}

}  // namespace

std::string snapshot_json(const Pool& pool, std::uint64_t sequence, bool with_details) {
  return snapshot_json(pool, pool.stats(), sequence, with_details);
}

std::string snapshot_json(const Pool& pool, const StatsV1& stats, std::uint64_t sequence,
                          bool with_details) {
  MapWriter map(stats, pool.tag_names().size());
  pool.visit_blocks_in_parts([&map](const BlockInfo& info) { map.add(info); });
  constexpr std::size_t kTextBesideBlocks = std::size_t{64} << 10;
  JsonWriter json;
  json.reserve(map.text_bytes() + kTextBesideBlocks);
  json.begin_object();
  json.field("schema", kSnapshotSchema);
  json.field("version", kSnapshotVersion);
  json.field("sequence", sequence);
  json.field("pool", pool.name());
  json.field("time_ms", (stats.start_unix_ns + (stats.time_ns - stats.start_time_ns)) /
                            kNanosecondsPerMillisecond);
  map.write(json, pool, with_details);
  json.end_object();
  return json.take() + "\n";
}

}  // namespace gpupool::internal
