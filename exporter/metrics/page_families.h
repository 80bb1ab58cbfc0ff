// The families of one page from those of several sources: joined where they have the same name,
// as each may stand once, and bounded, so that whatever a program registers, a page stays one that
// a scraper takes.
//
// Thread safety: plain functions. Cost: moves; where families are joined, a look-up for each
// series.
#ifndef GPUPOOL_EXPORTER_METRICS_PAGE_FAMILIES_H_
#define GPUPOOL_EXPORTER_METRICS_PAGE_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpupool::internal {

/// What scrape configurations take as sample_limit; ours does.
inline constexpr std::size_t kMaxSeriesOfAPage = 2000;

/// Series that were left out of a page.
struct DroppedSeries {
  std::uint64_t duplicate = 0;  // another source has the same name and labels
  std::uint64_t over_limit = 0;
};

/// Samples that one metric becomes: a histogram's are its buckets, its sum and its count.
std::size_t series_count(const prometheus::MetricFamily& family,
                         const prometheus::ClientMetric& metric);

/// In the order in which names come first. What is left out is added to `dropped`.
std::vector<prometheus::MetricFamily> page_families(std::vector<prometheus::MetricFamily> families,
                                                    std::size_t max_series, DroppedSeries& dropped);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_METRICS_PAGE_FAMILIES_H_
