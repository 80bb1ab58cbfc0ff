#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "exporter/http/json_writer.h"
#include "exporter/http/pool_sources.h"
#include "exporter/http/would_fit_json.h"
#include "gpupool/stats.h"
#include "tools/snapshot/command.h"

namespace gpupool::tools {

using internal::Document;
using internal::JsonWriter;
using internal::Query;

namespace {

using Answer = Result<Document, std::string>;

RecordedSource fixed_answer(const std::string& text) {
  if (text.empty()) return nullptr;
  return [&text](const Query&) -> Answer {
    return Document{.body = text, .packed_body = "", .version = ""};
  };
}

std::string recording_json(const SnapshotFile& file) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", "gpupool.recording");
  json.field("version", 1);
  json.field("kind", "snapshot");
  json.field("name", file.name);
  json.field("time_ms", file.time_ms);
  json.field("has_counters", file.has_counters);
  json.field("has_events", !file.events_json.empty());
  json.end_object();
  return json.take() + "\n";
}

/// By what the pool said of itself then: there is no pool to be asked.
Fit fit_of(const SnapshotFile& file, std::uint64_t bytes) {
  if (bytes <= file.largest_free_block_bytes) return Fit::now;
  return bytes <= file.largest_satisfiable_bytes ? Fit::by_growth : Fit::no;
}

Answer would_fit(const SnapshotFile& file, const Query& query) {
  const auto bytes = internal::read_fit_bytes(query);
  if (!bytes.ok()) return bytes.error();
  StatsV1 stats;
  stats.largest_free_block_bytes = file.largest_free_block_bytes;
  stats.largest_satisfiable_bytes = file.largest_satisfiable_bytes;
  stats.free_bytes = file.bytes_in("free");
  stats.pending_bytes = file.bytes_in("pending");
  stats.cached_bytes = file.bytes_in("cached");
  stats.held_bytes = file.held_bytes;
  stats.limit_in_force_bytes = file.limit_in_force_bytes;
  return internal::fit_document(file.pool, bytes.value(), std::nullopt, fit_of(file, bytes.value()),
                                stats);
}

}  // namespace

RecordedSources snapshot_sources(const SnapshotFile& file) {
  RecordedSources sources;
  sources.kind = "snapshot";
  sources.pool = file.pool;
  sources.device = file.device;
  sources.recording = [text = recording_json(file)](const Query&) -> Answer {
    return Document{.body = text, .packed_body = "", .version = ""};
  };
  sources.stats = fixed_answer(file.stats_json);
  sources.snapshot = fixed_answer(file.snapshot_json);
  sources.events = fixed_answer(file.events_json);
  static const std::string kNone = internal::last_failure_document(FailureReport());
  sources.last_failure =
      fixed_answer(file.last_failure_json.empty() ? kNone : file.last_failure_json);
  sources.would_fit = [&file](const Query& query) { return would_fit(file, query); };
  return sources;
}

}  // namespace gpupool::tools
