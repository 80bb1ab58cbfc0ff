// What the page shows of the past without any server: about forty numbers of a pool, each second
// for 15 minutes and each 15 seconds for 24 hours, in two rings of fixed size.
//
// Time is the pool's (StatsV1::time_ns), so that a pool on a virtual clock has a virtual history:
// of each second, and of each 15 seconds, the first snapshot that is added is kept.
// Thread safety: any thread. Cost: less than 2 MB of host memory; add() a few hundred nanoseconds,
// and reading a copy of what is asked for.
#ifndef GPUPOOL_EXPORTER_METRICS_HISTORY_H_
#define GPUPOOL_EXPORTER_METRICS_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "gpupool/stats.h"

namespace gpupool::internal {

struct HistoryColumn {
  std::string_view name;
  double (*read)(const StatsV1& stats);
};
/// What is kept, in this order.
std::span<const HistoryColumn> history_columns();

enum class Resolution : std::uint8_t { fine, coarse };  // 1 s, 15 s
std::uint64_t resolution_seconds(Resolution resolution) noexcept;

class History {
 public:
  static constexpr std::size_t kFineRows = 900;     // 15 minutes
  static constexpr std::size_t kCoarseRows = 5760;  // 24 hours

  History();

  void add(const StatsV1& stats);

  /// Rows, the oldest first: the Unix time in milliseconds, then the columns' values.
  struct Rows {
    std::size_t width = 0;
    std::vector<double> values;

    std::size_t count() const noexcept { return width == 0 ? 0 : values.size() / width; }
    double at(std::size_t row, std::size_t column) const { return values[row * width + column]; }
  };
  /// Those later than `since_ms`.
  Rows rows_since(std::uint64_t since_ms, Resolution resolution) const;
  /// Of the last row; 0: there is none.
  std::uint64_t last_ms(Resolution resolution) const;

  std::size_t bytes() const noexcept;

 private:
  struct Ring {
    std::uint64_t period_ns = 0;
    std::size_t rows = 0;
    std::vector<double> values;
    std::size_t count = 0;  // rows ever added
    std::uint64_t last_period = 0;

    const double* row(std::size_t number) const noexcept;
  };
  void add_to(Ring& ring, const StatsV1& stats);
  const Ring& ring_of(Resolution resolution) const noexcept;

  mutable std::mutex mutex_;
  Ring fine_;
  Ring coarse_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_METRICS_HISTORY_H_
