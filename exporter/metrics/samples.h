// One metric family being filled: puts a row's labels and values into prometheus-cpp's form.
//
// Values of `device` and `pool` come from the snapshot; what fills a row gives the rest, in the
// row's order. Label values are made valid UTF-8, a value that is not finite becomes 0.
// Thread safety: one thread. Cost: a few strings a sample.
#ifndef GPUPOOL_EXPORTER_METRICS_SAMPLES_H_
#define GPUPOOL_EXPORTER_METRICS_SAMPLES_H_

#include <prometheus/metric_family.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/metrics/identity.h"
#include "exporter/metrics/metric_table.h"
#include "gpupool/backend.h"
#include "gpupool/stats.h"

namespace gpupool::internal {

/// All that a scrape reads of one pool.
struct Snapshot {
  const StatsV1& stats;
  const DeviceInfo& device;
  const std::string& pool;
  const std::vector<std::string>& tags;
  bool are_tags_shown = true;  // else they are one, "hidden"
  const JobIdentity& job = job_identity();
};

class Samples {
 public:
  Samples(const MetricRow& row, const Snapshot& snapshot);

  void add(double value, std::initializer_list<std::string_view> labels = {});
  void add(std::uint64_t value, std::initializer_list<std::string_view> labels = {}) {
    add(static_cast<double>(value), labels);
  }
  /// A histogram of counts at or below each bound (not cumulative); counts beyond the last bound
  /// stand at its end.
  void add_histogram(std::span<const double> bounds, std::span<const std::uint64_t> counts,
                     double sum, std::initializer_list<std::string_view> labels = {});

  prometheus::MetricFamily take() { return std::move(family_); }

 private:
  prometheus::ClientMetric& new_metric(std::initializer_list<std::string_view> labels);

  const MetricRow& row_;
  const Snapshot& snapshot_;
  prometheus::MetricFamily family_;
};

/// Every family of the table that is read from a pool, in the table's order. A family that cannot
/// have samples (no size is watched) is left out.
std::vector<prometheus::MetricFamily> collect_families(const Snapshot& snapshot);
/// The same of several pools of one process, each family once with the samples of all. No two have
/// the same name and device.
std::vector<prometheus::MetricFamily> collect_families(std::span<const Snapshot> snapshots);

/// A family of one sample without labels: what the HTTP server adds to the pool's.
prometheus::MetricFamily make_family(const MetricRow& row, double value);

struct LabelledValue {
  std::string_view label;
  double value = 0;
};
/// The same for a row with one label.
prometheus::MetricFamily make_family(const MetricRow& row,
                                     std::initializer_list<LabelledValue> values);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_METRICS_SAMPLES_H_
