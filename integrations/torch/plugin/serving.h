// Serving a pool by HTTP, where this build can (serving_by_http.cc).
//
// Thread safety: any thread. Cost: that of Exporter::start.
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

/// Serves `pool` until the process ends; gives the address.
Result<std::string, Status> serve(Pool& pool, const ExporterOptions& options);

}  // namespace gpupool::torch

#endif  // GPUPOOL_INTEGRATIONS_TORCH_SERVING_H_
