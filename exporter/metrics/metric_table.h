// The contract with everybody who scrapes: every metric family that this exporter has, once, with
// its type, labels, help and how it is read from a snapshot of the pool. /metrics is generated
// from this table; dashboards, alert rules and documentation are checked against it. Renaming a
// family, or adding a label to one, breaks its users.
//
// Rules (a test checks them): base units last, counters end in _total, gauges never; one line of
// help; labels from closed sets; every family has samples, zeros included, from the start.
// Thread safety: constant data. Cost: none.
#ifndef GPUPOOL_EXPORTER_METRICS_METRIC_TABLE_H_
#define GPUPOOL_EXPORTER_METRICS_METRIC_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace gpupool::internal {

class Samples;
struct Snapshot;

enum class MetricKind : std::uint8_t { gauge, counter, histogram };

inline constexpr std::size_t kMaxLabels = 6;

/// Names of a family's labels, in the order in which they are shown.
class LabelNames {
 public:
  constexpr LabelNames(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) names_[count_++] = name;
  }
  constexpr std::span<const std::string_view> all() const { return {names_.data(), count_}; }

 private:
  std::array<std::string_view, kMaxLabels> names_{};
  std::size_t count_ = 0;
};

struct MetricRow {
  std::string_view name;
  MetricKind kind = MetricKind::gauge;
  LabelNames labels;
  std::string_view help;
  /// Adds the samples; nullptr where the HTTP server, not the pool, knows the value.
  void (*fill)(const Snapshot& snapshot, Samples& samples) = nullptr;
};

std::span<const MetricRow> metric_table();

/// The row of `name`. Requires: it is in the table.
const MetricRow& metric_row(std::string_view name);

// Families of the HTTP server, and of the exporter.
inline constexpr std::string_view kReloadSuccessful = "gpupool_config_last_reload_successful";
inline constexpr std::string_view kReloadTime =
    "gpupool_config_last_reload_success_timestamp_seconds";
inline constexpr std::string_view kCollectDuration = "gpupool_collect_duration_seconds";
inline constexpr std::string_view kCollectErrors = "gpupool_collect_errors_total";
inline constexpr std::string_view kSeriesDropped = "gpupool_series_dropped_total";
inline constexpr std::string_view kTextfileEnd = "gpupool_textfile_end_time_seconds";

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_METRICS_METRIC_TABLE_H_
