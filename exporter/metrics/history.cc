#include "exporter/metrics/history.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace gpupool::internal {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kCoarseSeconds = 15;
constexpr std::uint64_t kMillisecondNs = 1'000'000;

template <auto Field>
double number(const StatsV1& stats) {
  return static_cast<double>(stats.*Field);
}

template <auto Field>
double sum(const StatsV1& stats) {
  const auto& counts = stats.*Field;
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
}

using S = StatsV1;
constexpr HistoryColumn kColumns[] = {
    // Bytes.
    {"held_bytes", number<&S::held_bytes>},
    {"live_requested_bytes", number<&S::live_requested_bytes>},
    {"waste_bytes", number<&S::waste_bytes>},
    {"cached_bytes", number<&S::cached_bytes>},
    {"pending_bytes", number<&S::pending_bytes>},
    {"free_bytes", number<&S::free_bytes>},
    {"fallback_bytes", number<&S::fallback_bytes>},
    {"pinned_bytes", number<&S::pinned_bytes>},
    {"limit_in_force_bytes", number<&S::limit_in_force_bytes>},
    {"device_free_bytes", number<&S::device_free_bytes>},
    {"window_peak_requested_bytes", number<&S::window_peak_requested_bytes>},
    {"window_peak_held_bytes", number<&S::window_peak_held_bytes>},
    // Fragmentation.
    {"largest_free_block_bytes", number<&S::largest_free_block_bytes>},
    {"largest_satisfiable_bytes", number<&S::largest_satisfiable_bytes>},
    {"fragmentation_ratio", number<&S::fragmentation_ratio>},
    {"raw_fragmentation_ratio", number<&S::raw_fragmentation_ratio>},
    {"live_blocks", number<&S::live_blocks>},
    {"segments", number<&S::segments>},
    // What only rises.
    {"requests", number<&S::requests>},
    {"hits", number<&S::hits>},
    {"misses", number<&S::misses>},
    {"failures", number<&S::failures>},
    {"fallbacks", number<&S::fallbacks>},
    {"frees", number<&S::frees>},
    {"requested_bytes_total", number<&S::requested_bytes_total>},
    {"driver_calls", number<&S::driver_calls>},
    {"driver_ns", number<&S::driver_ns>},
    {"driver_wait_ns", number<&S::driver_wait_ns>},
    {"pages_mapped", number<&S::pages_mapped>},
    {"pages_unmapped", number<&S::pages_unmapped>},
    {"pages_recycled", number<&S::pages_recycled>},
    {"retries", number<&S::retries>},
    {"trims", sum<&S::trims_by_reason>},
    {"stream_waits", number<&S::stream_waits>},
    {"misuses", sum<&S::misuses>},
    {"reconfigurations", number<&S::reconfigurations>},
};
constexpr std::size_t kWidth = std::size(kColumns) + 1;  // and the time

constexpr std::size_t kMostBytes = 2'000'000;
static_assert((History::kFineRows + History::kCoarseRows) * kWidth * sizeof(double) < kMostBytes);

}  // namespace

std::span<const HistoryColumn> history_columns() { return kColumns; }

std::uint64_t resolution_seconds(Resolution resolution) noexcept {
  return resolution == Resolution::fine ? 1 : kCoarseSeconds;
}

History::History() {
  const auto make = [](Ring& ring, std::uint64_t seconds, std::size_t rows) {
    ring.period_ns = seconds * kSecondNs;
    ring.rows = rows;
    ring.values.resize(rows * kWidth);
  };
  make(fine_, resolution_seconds(Resolution::fine), kFineRows);
  make(coarse_, resolution_seconds(Resolution::coarse), kCoarseRows);
}

const double* History::Ring::row(std::size_t number) const noexcept {
  return values.data() + number % rows * kWidth;
}

void History::add(const StatsV1& stats) {
  const std::lock_guard lock(mutex_);
  add_to(fine_, stats);
  add_to(coarse_, stats);
}

void History::add_to(Ring& ring, const StatsV1& stats) {
  const std::uint64_t period = stats.time_ns / ring.period_ns;
  if (ring.count > 0 && period <= ring.last_period) return;
  ring.last_period = period;
  double* out = ring.values.data() + ring.count % ring.rows * kWidth;
  ++ring.count;
  const std::uint64_t since_start_ns = stats.time_ns - stats.start_time_ns;
  *out++ = static_cast<double>((stats.start_unix_ns + since_start_ns) / kMillisecondNs);
  for (const HistoryColumn& column : kColumns) *out++ = column.read(stats);
}

const History::Ring& History::ring_of(Resolution resolution) const noexcept {
  return resolution == Resolution::fine ? fine_ : coarse_;
}

History::Rows History::rows_since(std::uint64_t since_ms, Resolution resolution) const {
  Rows rows{.width = kWidth, .values = {}};
  const auto since = static_cast<double>(since_ms);
  const std::lock_guard lock(mutex_);
  const Ring& ring = ring_of(resolution);
  const std::size_t oldest = ring.count - std::min(ring.count, ring.rows);
  std::size_t first = ring.count;
  while (first > oldest && *ring.row(first - 1) > since) --first;
  rows.values.reserve((ring.count - first) * kWidth);
  for (std::size_t number = first; number < ring.count; ++number) {
    const double* const row = ring.row(number);
    rows.values.insert(rows.values.end(), row, row + kWidth);
  }
  return rows;
}

std::uint64_t History::last_ms(Resolution resolution) const {
  const std::lock_guard lock(mutex_);
  const Ring& ring = ring_of(resolution);
  return ring.count == 0 ? 0 : static_cast<std::uint64_t>(*ring.row(ring.count - 1));
}

std::size_t History::bytes() const noexcept {
  return (fine_.values.size() + coarse_.values.size()) * sizeof(double);
}

}  // namespace gpupool::internal
