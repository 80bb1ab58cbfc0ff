#include "tools/snapshot/file.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "gpupool/stats.h"
#include "gpupool/stats_names.h"
#include "tools/command_line.h"
#include "tools/snapshot/checked_json.h"
#include "tools/snapshot/page_map.h"
#include "tools/trace/line_reader.h"
#include "tools/trace/read_file.h"

namespace gpupool::tools {
namespace {

constexpr const char* kSnapshotSchema = "gpupool.snapshot";
constexpr const char* kPageSchema = "gpupool.page";
constexpr std::uint64_t kVersion = 1;

/// dashboards/live/src/api.ts
constexpr const char* kNumbersOfPage[] = {"time_ns",
                                          "start_time_ns",
                                          "start_unix_ns",
                                          "limit_bytes",
                                          "limit_in_force_bytes",
                                          "held_bytes",
                                          "live_requested_bytes",
                                          "waste_bytes",
                                          "cached_bytes",
                                          "pending_bytes",
                                          "free_bytes",
                                          "largest_free_block_bytes",
                                          "largest_satisfiable_bytes",
                                          "device_free_bytes",
                                          "device_total_bytes",
                                          "requests",
                                          "hits",
                                          "misses",
                                          "failures",
                                          "fallbacks",
                                          "frees",
                                          "driver_calls",
                                          "driver_wait_ns",
                                          "fallback_bytes",
                                          "peak_requested_bytes",
                                          "peak_held_bytes",
                                          "window_peak_requested_bytes",
                                          "live_blocks",
                                          "streams",
                                          "runs",
                                          "chunks",
                                          "slabs",
                                          "pages_mapped",
                                          "pages_unmapped",
                                          "pages_recycled",
                                          "threshold_required_block_bytes"};

/// A pickle begins so, with the number of its protocol.
constexpr char kPickle = '\x80';

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void check_indexes(const Checked& list, std::size_t below) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list.at(i).whole() >= below)
      throw NotAsExpected(list.at(i).place() + " is of nothing there");
  }
}

void check_digits(const Checked& text, std::size_t below) {
  for (const char digit : text.text()) {
    if (digit < '0' || static_cast<std::size_t>(digit - '0') >= below) {
      throw NotAsExpected(text.place() + " is of nothing there");
    }
  }
}

/// The blocks of the arena, or the fallbacks. Addresses may be missing where details are hidden.
void check_columns(const Checked& blocks, const Checked& snapshot, const char* offset_key) {
  const std::uint64_t shown = blocks.at("shown").whole();
  if (blocks.at("count").whole() < shown) {
    throw NotAsExpected(blocks.at("count").place() + " is less than what is shown");
  }
  std::vector<const char*> lists = {"bytes", "requested", "tag", "stream", "age_ms"};
  if (blocks.has(offset_key)) lists.push_back(offset_key);
  for (const char* key : lists) {
    const Checked list = blocks.at(key);
    if (list.size() != shown) {
      throw NotAsExpected(list.place() + " has " + std::to_string(list.size()) + " items, not " +
                          std::to_string(shown));
    }
    for (std::size_t i = 0; i < list.size(); ++i) list.at(i).whole();
  }
  for (const char* key : {"state", "tier"}) {
    if (blocks.at(key).text().size() != shown) {
      throw NotAsExpected(blocks.at(key).place() + " is not as long as the others");
    }
  }
  check_digits(blocks.at("state"), snapshot.at("states").size());
  check_digits(blocks.at("tier"), snapshot.at("tiers").size());
  check_indexes(blocks.at("tag"), snapshot.at("tags").size());
  check_indexes(blocks.at("stream"), snapshot.at("streams").size());
}

void check_lists(const Checked& snapshot) {
  for (std::size_t i = 0; i < snapshot.at("streams").size(); ++i) {
    const Checked stream = snapshot.at("streams").at(i);
    for (const char* key : {"id", "live_bytes", "cached_bytes", "pending_bytes"}) {
      stream.at(key).whole();
    }
  }
  for (std::size_t i = 0; i < snapshot.at("tiers").size(); ++i) snapshot.at("tiers").at(i).text();
  for (const char* key : {"free_by_log2", "free_bytes_by_log2", "free_buddies_by_log2"}) {
    const Checked list = snapshot.at("runs").at(key);
    for (std::size_t i = 0; i < list.size(); ++i) list.at(i).whole();
  }
  for (const char* key : {"bytes", "mapped", "empty"}) snapshot.at("pages").at(key).whole();
  snapshot.at("arena").at("range_used_bytes").whole();
  snapshot.at("arena").at("backing").text();
  snapshot.at("sequence").whole();
}

/// Reads what the summary shows, and checks all that the page does.
void read_map(const Checked& snapshot, SnapshotFile& file) {
  file.pool = snapshot.at("pool").text();
  file.time_ms = snapshot.at("time_ms").whole();
  const Checked arena = snapshot.at("arena");
  file.held_bytes = arena.at("held_bytes").whole();
  file.limit_in_force_bytes = arena.at("limit_in_force_bytes").whole();
  file.largest_free_block_bytes = arena.at("largest_free_block_bytes").whole();
  file.largest_satisfiable_bytes = arena.at("largest_satisfiable_bytes").whole();
  file.fragmentation_ratio = arena.at("fragmentation_ratio").number();
  const Checked states = snapshot.at("states");
  for (std::size_t i = 0; i < states.size(); ++i) {
    file.states.push_back({states.at(i).at("name").text(), states.at(i).at("blocks").whole(),
                           states.at(i).at("bytes").whole()});
  }
  const Checked tags = snapshot.at("tags");
  for (std::size_t i = 0; i < tags.size(); ++i) {
    // Names are hidden in answers beyond loopback.
    const bool is_named = tags.at(i).has("name");
    file.tags.push_back({is_named               ? tags.at(i).at("name").text()
                         : i + 1 == tags.size() ? "untagged"
                                                : "tag " + std::to_string(i + 1),
                         tags.at(i).at("live_blocks").whole(),
                         tags.at(i).at("live_requested_bytes").whole()});
  }
  check_lists(snapshot);
  check_columns(snapshot.at("blocks"), snapshot, "offset");
  check_columns(snapshot.at("fallbacks"), snapshot, "address");
  file.fallback_blocks = snapshot.at("fallbacks").at("count").whole();
}

/// What a map alone says of the pool's numbers. All others are 0, and the page does not show them.
Json stats_of_map(const Checked& snapshot, const SnapshotFile& file) {
  Json stats;
  for (const StatsNumber& number : kStatsNumbers) stats[number.name] = 0;
  for (const StatsRatio& ratio : kStatsRatios) stats[ratio.name] = 0;
  constexpr std::uint64_t kNsInMs = 1'000'000;
  std::uint64_t requested = 0;
  Json tags = Json::object();
  for (const SnapshotTag& tag : file.tags) {
    requested += tag.bytes;
    if (tag.name != "untagged") tags[tag.name] = tag.bytes;
  }
  const std::uint64_t live = file.bytes_in("live");
  stats["start_unix_ns"] = file.time_ms * kNsInMs;
  stats["limit_bytes"] = file.limit_in_force_bytes;
  stats["limit_in_force_bytes"] = file.limit_in_force_bytes;
  stats["held_bytes"] = file.held_bytes;
  stats["live_requested_bytes"] = requested;
  stats["waste_bytes"] = live - std::min(live, requested);
  for (const char* name : {"cached", "pending", "free"}) {
    stats[std::string(name) + "_bytes"] = file.bytes_in(name);
  }
  stats["largest_free_block_bytes"] = file.largest_free_block_bytes;
  stats["largest_satisfiable_bytes"] = file.largest_satisfiable_bytes;
  stats["fragmentation_ratio"] = file.fragmentation_ratio;
  const auto live_state = std::ranges::find(file.states, "live", &SnapshotState::name);
  stats["live_blocks"] = live_state == file.states.end() ? 0 : live_state->blocks;
  // Or the page says that nothing was ever asked of the pool.
  stats["requests"] = stats["live_blocks"];
  stats["peak_requested_bytes"] = requested;
  const Json& runs = snapshot.at("runs").json();
  stats["free_runs_by_log2"] = runs["free_by_log2"];
  stats["free_run_bytes_by_log2"] = runs["free_bytes_by_log2"];
  stats["free_buddies_by_log2"] = runs["free_buddies_by_log2"];
  stats["misses_by_reason"] = Json::object();
  stats["failures_by_reason"] = Json::object();
  stats["driver_calls_by_operation"] = Json::object();
  stats["tag_live_bytes"] = std::move(tags);
  stats["watched"] = Json::array();
  stats["recycling"] = "";
  stats["policy"] = "";
  stats["backing"] = snapshot.at("arena").at("backing").text();
  return {{"schema", "gpupool.stats"},
          {"version", 1},
          {"pool", file.pool},
          {"process", {{"host", ""}, {"pid", 0}, {"job_id", ""}, {"library", ""}, {"cuda", ""}}},
          {"device",
           {{"ordinal", 0}, {"name", ""}, {"uuid", ""}, {"driver", ""}, {"simulated", false}}},
          {"stats", std::move(stats)}};
}

/// Of a page's file: every number that the page reads from the process's.
void check_stats(const Checked& answer) {
  const Checked stats = answer.at("stats");
  // Not all that there are now: a file of an earlier build has fewer.
  for (const char* key : kNumbersOfPage) stats.at(key).whole();
  for (const char* key : {"fragmentation_ratio", "threshold_fragmentation_ratio",
                          "threshold_critical_fragmentation_ratio"}) {
    stats.at(key).number();
  }
  for (const char* key :
       {"misses_by_reason", "failures_by_reason", "driver_calls_by_operation", "tag_live_bytes"}) {
    if (!stats.at(key).json().is_object()) throw NotAsExpected(std::string(key) + " is no object");
  }
  stats.at("watched").array();
  answer.at("process").at("host").text();
  answer.at("device").at("ordinal").whole();
  answer.at("device").at("name").text();
  answer.at("device").at("driver").text();
}

void read_page(const Checked& whole, SnapshotFile& file) {
  check_stats(whole);
  if (whole.at("map").json().is_null()) {
    throw NotAsExpected("the page had no map yet when it was saved");
  }
  const Json snapshot = snapshot_of_page(whole.at("map"), whole.at("stats"));
  read_map({snapshot, "map"}, file);
  file.snapshot_json = dump(snapshot);
  file.device = static_cast<int>(whole.at("device").at("ordinal").whole());
  file.has_counters = true;
  Json stats;
  for (const char* key : {"pool", "process", "device", "stats"}) stats[key] = whole.json()[key];
  file.stats_json = dump(stats);
  if (whole.has("events") && whole.json()["events"].is_array()) {
    file.events_json = dump({{"schema", "gpupool.events"},
                             {"version", 1},
                             {"last", whole.json()["events"].size()},
                             {"events", whole.json()["events"]}});
  }
  if (whole.has("last_failure") && whole.json()["last_failure"].is_object()) {
    file.last_failure_json = dump(whole.json()["last_failure"]);
  }
}

Status wrong(const std::string& path, const std::string& reason) {
  return {Error::invalid_argument, path + ": " + reason};
}

void read(const Json& json, SnapshotFile& file) {
  const Checked whole(json, "");
  if (!whole.has("schema")) throw NotAsExpected("no snapshot of gpupool: it has no schema");
  const std::string schema = whole.at("schema").text();
  if (schema != kSnapshotSchema && schema != kPageSchema) {
    throw NotAsExpected("its schema is " + quote(schema) + ", not " + kSnapshotSchema + " or " +
                        kPageSchema);
  }
  if (const std::uint64_t version = whole.at("version").whole(); version != kVersion) {
    throw NotAsExpected("its version is " + std::to_string(version) + " of " + schema +
                        "; this program reads version 1");
  }
  if (schema == kPageSchema) {
    read_page(whole, file);
    return;
  }
  read_map(whole, file);
  file.snapshot_json = dump(json);
  file.stats_json = dump(stats_of_map(whole, file));
}

}  // namespace

std::uint64_t SnapshotFile::bytes_in(std::string_view state) const {
  const auto found = std::ranges::find(states, state, &SnapshotState::name);
  return found == states.end() ? 0 : found->bytes;
}

Result<SnapshotFile, Status> parse_snapshot(const std::string& path, const std::string& text) {
  if (!text.empty() && text[0] == kPickle) {
    return wrong(path,
                 "a pickle, as PyTorch saves its snapshots;"
                 " gpupool.torch.convert_snapshot() makes a trace of one, for gpupool replay");
  }
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return wrong(path, "no JSON, or not all of it");
  SnapshotFile file;
  file.path = path;
  file.name = path.substr(path.find_last_of('/') + 1);
  try {
    read(json, file);
  } catch (const NotAsExpected& error) {
    return wrong(path, error.what());
  }
  return file;
}

Result<SnapshotFile, Status> load_snapshot(const std::string& path) {
  const auto text = read_text_file(path);
  if (!text.ok()) return wrong(path, text.error().message);
  return parse_snapshot(path, text.value());
}

}  // namespace gpupool::tools
