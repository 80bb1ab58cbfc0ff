// Serving pools by HTTP, all by one exporter, where this build can (serving_by_http.cc).
//
// Thread safety: serve() from one thread at a time; retire_serving() from any. Cost: that of
// Exporter::start, once.
#ifndef GPUPOOL_INTEGRATIONS_TORCH_SERVING_H_
#define GPUPOOL_INTEGRATIONS_TORCH_SERVING_H_

#include <string>

#include "gpupool/exporter/config.h"
#include "gpupool/observer.h"
#include "gpupool/pool.h"
#include "gpupool/status.h"

namespace gpupool::torch {

/// Whom a pool that will be served with `options` is to tell of its slow path, and names it there:
/// for good, as the pool is. nullptr where nothing is served.
SlowPathObserver* keep_events(ExporterOptions& options);

/// Serves `pool` until the process ends, with those that are served already; gives the address,
/// which all share. `config` is what the process was started with, the same for all;
/// `events` what the pool tells, or nullptr.
Result<std::string, Status> serve(Pool& pool, const Config& config, const EventLog* events);

/// The process is about to end: it is taken out of exporter.discovery.
void retire_serving();

}  // namespace gpupool::torch

#endif  // GPUPOOL_INTEGRATIONS_TORCH_SERVING_H_
