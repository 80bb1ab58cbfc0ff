// The settings of a pool that `gpupool advise` tries, and the steps it tries each of them in.
//
// Thread safety: plain values and functions.
#ifndef GPUPOOL_TOOLS_ADVISE_SETTING_H_
#define GPUPOOL_TOOLS_ADVISE_SETTING_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gpupool/options.h"
#include "tools/replay/replay.h"

namespace gpupool::tools {

/// As a pool has it that was told nothing. `slack_percent` says something under `eager` only, and
/// `alias_reuse` where pages are moved; elsewhere they are the defaults, so that settings which do
/// the same are equal.
struct Setting {
  Recycling recycling = RuntimeOptions().recycling;
  double slack_percent = 0.5;
  AliasReuse alias_reuse = RuntimeOptions().alias_reuse;
  std::uint64_t cache_large_bytes = PoolOptions().cache_large_bytes;

  bool operator==(const Setting&) const = default;
};

inline constexpr std::array<double, 6> kSlackPercents = {0, 0.5, 1, 2, 5, 8};
inline constexpr std::array<std::uint64_t, 5> kCacheLargeSizes = {
    0, std::uint64_t{2} << 20, std::uint64_t{8} << 20, std::uint64_t{32} << 20,
    std::uint64_t{128} << 20};

/// Everything that may be done with empty pages, `cache_large` as it is in `setting`.
std::vector<Setting> with_each_policy(const Setting& setting);
/// Every size of `cache_large`, the rest as it is in `setting`.
std::vector<Setting> with_each_cache(const Setting& setting);

/// `base` with `setting` in force.
ReplayOptions replay_options(const ReplayOptions& base, const Setting& setting);

/// What is done with empty pages, in a few words: "off", "eager 0.5%, same_stream".
std::string policy_text(const Setting& setting);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_ADVISE_SETTING_H_
