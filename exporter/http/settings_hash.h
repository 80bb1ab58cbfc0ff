// Tells whether two pools run by the same settings, at a glance: ranks of a job that differ here
// were started with different files, or one of them has been told something else since.
//
// Of what is in force: capacity, reserve, backing, everything that may change while running, tags
// and watched sizes. What belongs to one process alone, its name and device, plays no part.
// Thread safety: plain functions. Cost: a microsecond.
#ifndef GPUPOOL_EXPORTER_HTTP_SETTINGS_HASH_H_
#define GPUPOOL_EXPORTER_HTTP_SETTINGS_HASH_H_

#include <string>

#include "gpupool/pool.h"

namespace gpupool::internal {

/// Twelve hexadecimal digits.
std::string settings_hash(const Pool& pool, const StatsV1& stats);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_SETTINGS_HASH_H_
