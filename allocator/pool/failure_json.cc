// The report of a request that failed, for programs.
#include "base/hex_text.h"
#include "base/json_text.h"
#include "gpupool/failure_report.h"

namespace gpupool {

using internal::hex;
using internal::JsonText;

namespace {

struct Number {
  const char* name;
  std::uint64_t FailureReport::*field;
};

constexpr Number kNumbers[] = {
    {"time_ns", &FailureReport::time_ns},
    {"requested_bytes", &FailureReport::requested_bytes},
    {"requested_alignment", &FailureReport::requested_alignment},
    {"stream_id", &FailureReport::stream_id},
    {"limit_bytes", &FailureReport::limit_bytes},
    {"limit_in_force_bytes", &FailureReport::limit_in_force_bytes},
    {"held_bytes", &FailureReport::held_bytes},
    {"live_requested_bytes", &FailureReport::live_requested_bytes},
    {"waste_bytes", &FailureReport::waste_bytes},
    {"cached_bytes", &FailureReport::cached_bytes},
    {"pending_bytes", &FailureReport::pending_bytes},
    {"free_bytes", &FailureReport::free_bytes},
    {"fallback_bytes", &FailureReport::fallback_bytes},
    {"largest_free_block_bytes", &FailureReport::largest_free_block_bytes},
    {"largest_satisfiable_bytes", &FailureReport::largest_satisfiable_bytes},
    {"device_free_bytes", &FailureReport::device_free_bytes},
    {"device_total_bytes", &FailureReport::device_total_bytes},
    {"further_pending_streams", &FailureReport::further_pending_streams},
    {"pending_elsewhere_bytes", &FailureReport::pending_elsewhere_bytes},
    {"waited_ns", &FailureReport::waited_ns},
};

/// As a debugger shows it; null where it is not known.
void write_handle(JsonText& json, std::optional<std::uint64_t> handle) {
  json.key("stream_handle");
  handle.has_value() ? json.value(hex(*handle)) : json.null();
}

void write_pending(JsonText& json, const FailureReport& report) {
  json.key("pending_streams").open('[');
  for (const PendingOfStream& pending : report.pending_streams) {
    json.open('{');
    json.field("stream_id", pending.stream_id);
    write_handle(json, pending.stream_handle);
    json.field("bytes", pending.bytes);
    json.field("is_awaited", pending.is_awaited);
    json.close('}');
  }
  json.close(']');
}

void write_tags(JsonText& json, const FailureReport& report) {
  json.key("live_by_tag").open('{');
  for (const TagBytes& tag : report.live_by_tag) json.field(tag.tag, tag.bytes);
  json.close('}');
}

void write_misses(JsonText& json, const FailureReport& report) {
  json.key("last_misses").open('[');
  for (const MissRecord& miss : report.last_misses) {
    json.open('{');
    json.field("time_ns", miss.time_ns);
    json.field("bytes", miss.bytes);
    json.field("stream_id", miss.stream_id);
    write_handle(json, miss.stream_handle);
    json.field("reason", to_string(miss.reason));
    json.field("failed", miss.failed);
    json.close('}');
  }
  json.close(']');
}

void write_rungs(JsonText& json, const FailureReport& report) {
  json.key("rungs").open('{');
  for (std::size_t i = 0; i < kLadderRungCount; ++i) {
    json.key(to_string(static_cast<LadderRung>(i))).open('{');
    json.field("was_tried", report.rungs[i].was_tried);
    json.field("gave_bytes", report.rungs[i].gave_bytes);
    json.close('}');
  }
  json.close('}');
}

}  // namespace

std::string FailureReport::json() const {
  JsonText json;
  json.open('{');
  json.field("happened", happened);
  if (happened) {
    json.field("error", to_string(error));
    json.field("reason", to_string(reason));
    json.field("cause", to_string(cause));
    json.field("pool", pool);
    json.field("tag", tag);
    json.field("is_contiguous", is_contiguous);
    json.field("limit_kind", to_string(limit_kind));
    json.field("capacity_fraction", capacity_fraction);
    json.field("is_address_space_used_up", is_address_space_used_up);
    json.field("is_process_gone", is_process_gone);
    for (const Number& number : kNumbers) json.field(number.name, this->*number.field);
    write_handle(json, stream_handle);
    json.field("retries", retries);
    write_pending(json, *this);
    write_tags(json, *this);
    write_misses(json, *this);
    write_rungs(json, *this);
  }
  json.close('}');
  return json.take();
}

}  // namespace gpupool
