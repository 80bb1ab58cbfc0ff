#include "exporter/metrics/samples.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "exporter/base/utf8.h"

namespace gpupool::internal {
namespace {

prometheus::MetricType prometheus_type(MetricKind kind) {
  switch (kind) {
    case MetricKind::gauge: return prometheus::MetricType::Gauge;
    case MetricKind::counter: return prometheus::MetricType::Counter;
    case MetricKind::histogram: return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::MetricFamily empty_family(const MetricRow& row) {
  prometheus::MetricFamily family;
  family.name = row.name;
  family.help = row.help;
  family.type = prometheus_type(row.kind);
  return family;
}

void set_value(MetricKind kind, double value, prometheus::ClientMetric& metric) {
  if (!std::isfinite(value)) value = 0;  // one NaN in a total looks like a restart to a rate
  if (kind == MetricKind::counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

/// Whether a pool before the one at `i` has given the samples of `row` that this one would: those
/// of the process, and of a device that they share.
bool is_said_already(const MetricRow& row, std::span<const Snapshot> snapshots, std::size_t i) {
  const auto labels = row.labels.all();
  if (std::ranges::find(labels, "pool") != labels.end()) return false;
  if (std::ranges::find(labels, "device") == labels.end()) return i > 0;
  const int ordinal = snapshots[i].device.ordinal;
  return std::ranges::any_of(snapshots.first(i), [ordinal](const Snapshot& before) {
    return before.device.ordinal == ordinal;
  });
}

}  // namespace

Samples::Samples(const MetricRow& row, const Snapshot& snapshot)
    : row_(row), snapshot_(snapshot), family_(empty_family(row)) {}

prometheus::ClientMetric& Samples::new_metric(std::initializer_list<std::string_view> labels) {
  prometheus::ClientMetric& metric = family_.metric.emplace_back();
  auto next = labels.begin();
  for (const std::string_view name : row_.labels.all()) {
    std::string value;
    if (name == "device") {
      value = std::to_string(snapshot_.device.ordinal);
    } else if (name == "pool") {
      value = to_valid_utf8(snapshot_.pool);
    } else if (next != labels.end()) {
      value = to_valid_utf8(*next++);
    }
    metric.label.push_back({std::string(name), std::move(value)});
  }
  return metric;
}

void Samples::add(double value, std::initializer_list<std::string_view> labels) {
  set_value(row_.kind, value, new_metric(labels));
}

void Samples::add_histogram(std::span<const double> bounds, std::span<const std::uint64_t> counts,
                            double sum, std::initializer_list<std::string_view> labels) {
  prometheus::ClientMetric::Histogram& histogram = new_metric(labels).histogram;
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    cumulative += counts[i];
    if (i < bounds.size()) histogram.bucket.push_back({cumulative, bounds[i]});
  }
  histogram.sample_count = cumulative;
  histogram.sample_sum = std::isfinite(sum) ? sum : 0;
}

std::vector<prometheus::MetricFamily> collect_families(const Snapshot& snapshot) {
  return collect_families(std::span<const Snapshot>(&snapshot, 1));
}

std::vector<prometheus::MetricFamily> collect_families(std::span<const Snapshot> snapshots) {
  std::vector<prometheus::MetricFamily> families;
  families.reserve(metric_table().size());
  for (const MetricRow& row : metric_table()) {
    if (row.fill == nullptr) continue;
    prometheus::MetricFamily family = empty_family(row);
    for (std::size_t i = 0; i < snapshots.size(); ++i) {
      if (is_said_already(row, snapshots, i)) continue;
      Samples samples(row, snapshots[i]);
      row.fill(snapshots[i], samples);
      prometheus::MetricFamily more = samples.take();
      family.metric.insert(family.metric.end(), std::make_move_iterator(more.metric.begin()),
                           std::make_move_iterator(more.metric.end()));
    }
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
  return families;
}

prometheus::MetricFamily make_family(const MetricRow& row, double value) {
  prometheus::MetricFamily family = empty_family(row);
  set_value(row.kind, value, family.metric.emplace_back());
  return family;
}

prometheus::MetricFamily make_family(const MetricRow& row,
                                     std::initializer_list<LabelledValue> values) {
  prometheus::MetricFamily family = empty_family(row);
  for (const auto& [label, value] : values) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label.push_back({std::string(row.labels.all().front()), std::string(label)});
    set_value(row.kind, value, metric);
  }
  return family;
}

}  // namespace gpupool::internal
