#include <utility>

#include "exporter/metrics/metric_table.h"
#include "exporter/metrics/samples.h"
#include "gpupool/exporter/collector.h"

namespace gpupool {

PoolCollector::PoolCollector(const Pool& pool) : pool_(pool) {}

std::vector<prometheus::MetricFamily> PoolCollector::Collect() const {
  const StatsV1 stats = pool_.stats();
  return internal::collect_families(
      {.stats = stats, .device = pool_.device(), .pool = pool_.name(), .tags = pool_.tag_names()});
}

}  // namespace gpupool
