// A pool's numbers as prometheus-cpp metric families. A service that has a prometheus-cpp registry
// registers this there and needs nothing else of the exporter:
//
//   auto collector = std::make_shared<gpupool::PoolCollector>(pool);
//   registry.RegisterCollectable(collector);   // the registry keeps only a weak reference
//
// Thread safety: Collect may be called from any thread; it makes no driver call and throws
// nothing of ours. The pool outlives the collector. Cost: one Pool::stats() and about 230 series.
#ifndef GPUPOOL_EXPORTER_COLLECTOR_H_
#define GPUPOOL_EXPORTER_COLLECTOR_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

#include "gpupool/pool.h"

namespace gpupool {

class PoolCollector final : public prometheus::Collectable {
 public:
  explicit PoolCollector(const Pool& pool);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Pool& pool_;
};

}  // namespace gpupool

#endif  // GPUPOOL_EXPORTER_COLLECTOR_H_
