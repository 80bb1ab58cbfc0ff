// The last events of a pool's slow path as JSON.
//
//   {"schema": "gpupool.events", "version": 1, "last": 4711, "events": [
//     {"number": 4711, "time_ms": ..., "kind": "failure", "bytes": ..., "reason": "fragmented",
//      "error": "out_of_memory", "failure": {FailureReport::json()}}, ...]}
//
// An event has the fields that its kind has. Thread safety: plain functions. Cost: about 1 us an
// event.
#ifndef GPUPOOL_EXPORTER_HTTP_EVENTS_JSON_H_
#define GPUPOOL_EXPORTER_HTTP_EVENTS_JSON_H_

#include <cstdint>
#include <string>

#include "exporter/http/endpoints.h"
#include "exporter/http/query.h"
#include "gpupool/exporter/event_log.h"

namespace gpupool::internal {

/// Parameters: since=NUMBER (events after that one). `unix_offset_ns` is what makes a time of the
/// pool's clock one of the wall clock.
Result<Document, std::string> events_document(const EventLog& log, const Query& query,
                                              std::uint64_t unix_offset_ns, bool with_details);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_EVENTS_JSON_H_
