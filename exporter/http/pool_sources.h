// What the endpoints show, from a pool.
//
// Thread safety: each source may be called from any thread; the pool outlives them. Cost: that of
// Pool::stats(), and of writing the answer.
#ifndef GPUPOOL_EXPORTER_HTTP_POOL_SOURCES_H_
#define GPUPOOL_EXPORTER_HTTP_POOL_SOURCES_H_

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "exporter/http/endpoints.h"
#include "exporter/metrics/history.h"
#include "exporter/metrics/identity.h"
#include "gpupool/exporter/event_log.h"
#include "gpupool/failure_report.h"
#include "gpupool/pool.h"

namespace gpupool::internal {

/// Of a pool. Without details there are no addresses and no names of tags in what the sources give.
/// `job` outlives them, as do `history` and `events`, where they are not nullptr.
Sources pool_sources(const Pool& pool, const JobIdentity& job, bool with_details,
                     const History* history = nullptr, const EventLog* events = nullptr);

/// The families of several pools of one process, each family once.
std::vector<prometheus::MetricFamily> collect_pools(const std::vector<Pool*>& pools,
                                                    const JobIdentity& job, bool with_details);

/// {"schema":"gpupool.pools","version":1,"pools":[{"pool":"default","device":0}, ...]}
std::string pools_json(const std::vector<Pool*>& pools);

/// {"schema":"gpupool.last_failure","version":1,"happened":false}, or what FailureReport::json has.
std::string last_failure_document(const FailureReport& report);

/// Takes the names of tags out.
void hide_details(FailureReport& report);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_POOL_SOURCES_H_
