#include "tools/serve/recorded_job.h"

#include <cstddef>
#include <string_view>
#include <utility>

#include "exporter/http/events_json.h"
#include "exporter/http/json_writer.h"
#include "exporter/http/pool_sources.h"
#include "exporter/http/settings_hash.h"
#include "exporter/http/snapshot_json.h"
#include "exporter/http/stats_json.h"
#include "exporter/http/would_fit_json.h"
#include "exporter/metrics/history.h"
#include "exporter/metrics/identity.h"
#include "exporter/metrics/samples.h"
#include "gpupool/failure_report.h"

namespace gpupool::tools {

using internal::Document;
using internal::JsonWriter;
using internal::Query;

namespace {

constexpr double kNsPerMs = 1e6;

Document plain(std::string body) {
  return {.body = std::move(body), .packed_body = "", .version = ""};
}

/// As if the pool had been opened at Unix time 0.
StatsV1 stats_since_start(const Pool& pool) {
  StatsV1 stats = pool.stats();
  stats.start_unix_ns = 0;
  return stats;
}

std::string stats_at(const Positions::View& view) {
  // Whoever replays it is not the process that was recorded.
  static const internal::JobIdentity nobody;
  const StatsV1 stats = stats_since_start(view.pool);
  const internal::Snapshot snapshot{.stats = stats,
                                    .device = view.pool.device(),
                                    .pool = view.pool.name(),
                                    .tags = view.pool.tag_names(),
                                    .are_tags_shown = true,
                                    .job = nobody};
  return internal::stats_json(snapshot, internal::settings_hash(view.pool, stats));
}

void write_place(JsonWriter& json, std::uint64_t operation, std::uint64_t time_ns) {
  json.field("operation", operation);
  json.field("time_ms", static_cast<double>(time_ns) / kNsPerMs);
}

void write_moment(JsonWriter& json, std::string_view name, const Moment& moment) {
  json.begin_object(name);
  write_place(json, moment.operation, moment.time_ns);
  json.field("value", moment.value);
  json.end_object();
}

void write_birth(JsonWriter& json, const Birth& birth) {
  json.begin_object("birth");
  write_place(json, birth.operation, birth.time_ns);
  json.field("value", birth.value);
  json.field("from_operation", birth.from_operation);
  json.field("from", birth.from);
  json.end_object();
}

void write_marks(JsonWriter& json, std::string_view name, const Marks& marks) {
  json.begin_object(name);
  json.field("count", marks.count);
  json.begin_array("first");
  for (const Mark& mark : marks.first) {
    json.begin_object();
    write_place(json, mark.operation, mark.time_ns);
    json.field("bytes", mark.bytes);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

std::string recording_json(const Recording& recording) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", "gpupool.recording");
  json.field("version", 1);
  json.field("kind", "replay");
  json.field("name", recording.name);
  json.field("operations", recording.operations);
  json.field("stride", recording.stride);
  json.field("has_time", recording.has_time);
  json.field("duration_ms", static_cast<double>(recording.duration_ns) / kNsPerMs);
  json.field("replay_seconds", recording.replay_seconds);
  json.field("measure", to_string(recording.measure));
  write_moment(json, "peak_held", recording.peak_held);
  if (recording.worst) write_moment(json, "worst", *recording.worst);
  if (recording.birth) write_birth(json, *recording.birth);
  write_marks(json, "failures", recording.failures);
  write_marks(json, "fallbacks", recording.fallbacks);
  json.end_object();
  return json.take() + "\n";
}

std::string recorded_history_json(const Recording& recording) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", "gpupool.recorded_history");
  json.field("version", 1);
  json.begin_array("time_ms");
  for (const Sample& sample : recording.samples) {
    json.item(static_cast<double>(sample.time_ns) / kNsPerMs);
  }
  json.end_array();
  json.begin_object("columns");
  json.begin_array("operation");
  for (const Sample& sample : recording.samples) json.item(sample.operation);
  json.end_array();
  std::size_t index = 0;
  for (const internal::HistoryColumn& column : internal::history_columns()) {
    json.begin_array(column.name);
    for (const Sample& sample : recording.samples) json.item(sample.columns[index]);
    json.end_array();
    ++index;
  }
  json.end_object();
  json.end_object();
  return json.take() + "\n";
}

Result<std::unique_ptr<RecordedJob>, Status> RecordedJob::create(Trace trace,
                                                                 const ReplayOptions& options) {
  auto steps = make_plan(trace, {options.honour_completions, options.scale});
  if (!steps.ok()) return steps.error();
  auto recording = make_recording(trace, steps.value(), options);
  if (!recording.ok()) return recording.error();
  std::unique_ptr<RecordedJob> job(new RecordedJob(std::move(trace), std::move(steps).value(),
                                                   std::move(recording).value(), options));
  // So that the first who asks need not wait, and a pool that cannot be had is an error now.
  const auto opened = job->positions_.look(
      0, [&](const Positions::View& view) { job->pool_name_ = view.pool.name(); });
  if (!opened.ok()) return opened.error();
  return job;
}

RecordedJob::RecordedJob(Trace trace, std::vector<Step> steps, Recording recording,
                         const ReplayOptions& options)
    : trace_(std::move(trace)),
      steps_(std::move(steps)),
      recording_(std::move(recording)),
      positions_(trace_, steps_, options) {}

RecordedJob::Answer RecordedJob::at(const Query& query,
                                    const std::function<Answer(const Positions::View&)>& write) {
  const auto place = query.number("at", recording_.operations);
  if (!place.ok()) return place.error();
  if (place.value() > recording_.operations) {
    return "parameter 'at' is " + std::to_string(place.value()) +
           "; the recording has operations 0 to " + std::to_string(recording_.operations);
  }
  Answer answer = std::string();
  const auto looked =
      positions_.look(place.value(), [&](const Positions::View& view) { answer = write(view); });
  if (!looked.ok()) return looked.error().message;
  return answer;
}

RecordedSources RecordedJob::sources() {
  RecordedSources sources{.kind = "replay", .pool = pool_name_, .device = 0, .has_places = true};
  sources.recording = [text = recording_json(recording_)](const Query&) -> Answer {
    return plain(text);
  };
  sources.history = [text = recorded_history_json(recording_)](const Query&) -> Answer {
    return plain(text);
  };
  sources.stats = [this](const Query& query) {
    return at(query, [](const Positions::View& view) -> Answer { return plain(stats_at(view)); });
  };
  sources.snapshot = [this](const Query& query) {
    return at(query, [](const Positions::View& view) -> Answer {
      const StatsV1 stats = stats_since_start(view.pool);
      return plain(internal::snapshot_json(view.pool, stats, 1, true));
    });
  };
  sources.would_fit = [this](const Query& query) {
    return at(query, [&query](const Positions::View& view) -> Answer {
      return internal::would_fit_document(view.pool, query);
    });
  };
  sources.events = [this](const Query& query) {
    return at(query, [&query](const Positions::View& view) -> Answer {
      const std::uint64_t start_ns = view.pool.stats().start_time_ns;
      auto document = internal::events_document(view.events, query, 0 - start_ns, true);
      // Its version is of one log; here each place has a log.
      if (document.ok()) document.value().version.clear();
      return document;
    });
  };
  sources.last_failure = [this](const Query& query) {
    return at(query, [](const Positions::View& view) -> Answer {
      return plain(internal::last_failure_document(view.pool.last_failure()));
    });
  };
  return sources;
}

}  // namespace gpupool::tools
