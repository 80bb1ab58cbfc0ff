// One pool of one process as `gpupool top` shows it: read from the exporter's API, judged by the
// rules of the alerts without their waiting times, as the live page does (dashboards/live/src).
//
// Thread safety: plain values and functions. Cost: one reading of JSON.
#ifndef GPUPOOL_TOOLS_TOP_RANK_H_
#define GPUPOOL_TOOLS_TOP_RANK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpupool/status.h"

namespace gpupool::tools {

/// In the order in which somebody has to look.
enum class Health : std::uint8_t { out_of_memory, no_answer, at_risk, fragmented, ok };

const char* to_string(Health health);

struct Rank {
  std::string where;  // "node7:10064", and "/pool" where the process has several
  std::string rank;   // "3", or empty
  Health health = Health::ok;
  std::string reason;  // empty where it is ok
  std::uint64_t held_bytes = 0;
  std::uint64_t live_bytes = 0;
  std::uint64_t limit_bytes = 0;
  std::uint64_t largest_bytes = 0;  // the largest request that would be served
  std::uint64_t peak_bytes = 0;     // requested, of the last minute
  double fragmentation = 0;
  std::uint64_t failures = 0;
  std::uint64_t fallbacks = 0;
  std::uint64_t requests = 0;
  std::uint64_t time_ns = 0;  // of the process, for rates
  std::optional<double> requests_per_s;
  std::optional<double> full_in_s;  // where what is needed grows

  /// The part of the limit that the peak of the last minute leaves free.
  double headroom() const;
};

/// Of /api/v1/pools: the names and devices. The error says what is wrong with the text.
struct PoolName {
  std::string name;
  std::uint64_t device = 0;
};
Result<std::vector<PoolName>, std::string> read_pools(const std::string& json);

/// Of /api/v1/stats and /api/v1/last_failure of one pool.
Result<Rank, std::string> read_rank(const std::string& stats, const std::string& failure);

/// Of /api/v1/history: seconds until the peaks that grow meet the limit; nothing where they do not
/// grow from each third of the time to the next, by more than a hundredth in all, or where there
/// are less than three minutes. Half an hour is looked at: kTrendMs.
inline constexpr std::uint64_t kTrendMs = 30 * 60 * 1000;
std::optional<double> full_in_seconds(const std::string& history);

/// Whether `one` is to be shown before `other`: by health, then by who is full first, then by
/// headroom.
bool fails_before(const Rank& one, const Rank& other);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TOP_RANK_H_
