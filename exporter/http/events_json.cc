#include "exporter/http/events_json.h"

#include <string_view>
#include <vector>

#include "exporter/http/json_writer.h"
#include "exporter/http/pool_sources.h"

namespace gpupool::internal {
namespace {

constexpr std::string_view kEventsSchema = "gpupool.events";
constexpr int kEventsVersion = 1;

/// The fields that say something for events of this kind.
void write_particulars(JsonWriter& json, const SlowPathEvent& event) {
  switch (event.kind) {
    case SlowPathEventKind::driver_call: json.field("operation", to_string(event.operation)); break;
    case SlowPathEventKind::miss:
    case SlowPathEventKind::failure: json.field("reason", to_string(event.miss_reason)); break;
    case SlowPathEventKind::fallback: json.field("reason", to_string(event.fallback_reason)); break;
    case SlowPathEventKind::trim: json.field("reason", to_string(event.trim_reason)); break;
    case SlowPathEventKind::misuse: json.field("misuse", to_string(event.misuse)); break;
    case SlowPathEventKind::growth:
    case SlowPathEventKind::cache_drain:
    case SlowPathEventKind::epoch_closed:
    case SlowPathEventKind::reconfigured: break;
  }
  if (event.failed) json.field("error", to_string(event.error));
}

void write_entry(JsonWriter& json, const EventLog::Entry& entry, std::uint64_t unix_offset_ns,
                 bool with_details) {
  const SlowPathEvent& event = entry.event;
  json.begin_object();
  json.field("number", entry.number);
  json.field("time_ms", (event.time_ns + unix_offset_ns) / kNanosecondsPerMillisecond);
  json.field("kind", to_string(event.kind));
  json.field("bytes", event.bytes);
  if (event.duration_ns != 0) json.field("duration_ns", event.duration_ns);
  if (event.stream_id != 0) json.field("stream", event.stream_id);
  write_particulars(json, event);
  if (entry.failure != nullptr) {
    FailureReport report = *entry.failure;
    if (!with_details) hide_details(report);
    json.raw_field("failure", report.json());
  }
  json.end_object();
}

}  // namespace

Result<Document, std::string> events_document(const EventLog& log, const Query& query,
                                              std::uint64_t unix_offset_ns, bool with_details) {
  const auto since = query.number("since", 0);
  if (!since.ok()) return since.error();
  const std::vector<EventLog::Entry> entries = log.entries_after(since.value());
  const std::uint64_t last = entries.empty() ? log.last_number() : entries.back().number;
  JsonWriter json;
  json.begin_object();
  json.field("schema", kEventsSchema);
  json.field("version", kEventsVersion);
  json.field("last", last);
  json.begin_array("events");
  for (const EventLog::Entry& entry : entries) {
    write_entry(json, entry, unix_offset_ns, with_details);
  }
  json.end_array();
  json.end_object();
  // The numbers begin anew in each process.
  return Document{.body = json.take() + "\n",
                  .packed_body = "",
                  .version = std::to_string(unix_offset_ns) + "-" + std::to_string(last)};
}

}  // namespace gpupool::internal
