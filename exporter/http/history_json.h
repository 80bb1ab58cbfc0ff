// A pool's history as JSON: columns of equal length, the oldest first.
//
//   {"schema": "gpupool.history", "version": 1, "resolution_seconds": 1,
//    "time_ms": [...], "columns": {"held_bytes": [...], ...}}
//
// Thread safety: plain functions. Cost: about 40 ns a value.
#ifndef GPUPOOL_EXPORTER_HTTP_HISTORY_JSON_H_
#define GPUPOOL_EXPORTER_HTTP_HISTORY_JSON_H_

#include <string>

#include "exporter/http/endpoints.h"
#include "exporter/http/query.h"
#include "exporter/metrics/history.h"

namespace gpupool::internal {

/// Parameters: since=MS (Unix time, what is later), resolution=1s (default) or 15s.
Result<Document, std::string> history_document(const History& history, const Query& query);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_HISTORY_JSON_H_
