// What the endpoints show, from a pool.
//
// Thread safety: each source may be called from any thread; the pool outlives them. Cost: that of
// Pool::stats(), and of writing the answer.
#ifndef GPUPOOL_EXPORTER_HTTP_POOL_SOURCES_H_
#define GPUPOOL_EXPORTER_HTTP_POOL_SOURCES_H_

#include "exporter/http/endpoints.h"
#include "exporter/metrics/history.h"
#include "gpupool/exporter/event_log.h"
#include "gpupool/failure_report.h"
#include "gpupool/pool.h"

namespace gpupool::internal {

/// Of a pool. Without details there are no addresses and no names of tags in what the sources give.
/// `history` and `events` may be nullptr, and outlive the sources where they are not.
Sources pool_sources(const Pool& pool, bool with_details, const History* history = nullptr,
                     const EventLog* events = nullptr);

/// Takes the names of tags out.
void hide_details(FailureReport& report);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_POOL_SOURCES_H_
