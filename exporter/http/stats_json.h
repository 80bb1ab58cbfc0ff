// A snapshot of a pool as JSON: every field of StatsV1 under its own name, arrays by enum as
// objects with the enum's names, options in force by name; and who the process is.
//
// Thread safety: plain functions. Cost: about 10 KB of text.
#ifndef GPUPOOL_EXPORTER_HTTP_STATS_JSON_H_
#define GPUPOOL_EXPORTER_HTTP_STATS_JSON_H_

#include <string>
#include <string_view>

#include "exporter/metrics/samples.h"

namespace gpupool::internal {

/// `settings_hash`: of the pool, see settings_hash.h; left out where it is empty.
std::string stats_json(const Snapshot& snapshot, std::string_view settings_hash = {});

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_STATS_JSON_H_
