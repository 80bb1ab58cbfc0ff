#include "exporter/http/settings_hash.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gpupool/options.h"

namespace gpupool::internal {
namespace {

/// FNV-1a over values; each is closed, so that "a", "bc" and "ab", "c" differ.
class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) step(static_cast<unsigned char>(c));
    step(0);
  }
  void add(std::uint64_t number) {
    constexpr int kBits = 8;
    for (std::size_t i = 0; i < sizeof(number); ++i) {
      step(static_cast<unsigned char>(number & 0xff));
      number >>= kBits;
    }
  }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }

  std::string text() const {
    constexpr std::string_view kDigits = "0123456789abcdef";
    constexpr int kBitsADigit = 4;
    std::string digits(12, '0');
    std::uint64_t rest = value_;
    for (char& digit : digits) {
      digit = kDigits[rest & 0xf];
      rest >>= kBitsADigit;
    }
    return digits;
  }

 private:
  void step(unsigned char byte) {
    constexpr std::uint64_t kPrime = 1099511628211U;
    value_ = (value_ ^ byte) * kPrime;
  }
  std::uint64_t value_ = 14695981039346656037U;
};

void add_runtime(Hash& hash, const RuntimeOptions& options) {
  hash.add(to_string(options.recycling));
  hash.add(options.slack);
  hash.add(options.recycling_wait);
  hash.add(to_string(options.alias_reuse));
  hash.add(to_string(options.policy));
  hash.add(options.trim.idle_after_ns);
  hash.add(options.trim.idle_bytes_per_second);
  hash.add(options.trim.keep_device_free_bytes);
  hash.add(options.thresholds.fragmentation_ratio);
  hash.add(options.thresholds.required_block_bytes);
  hash.add(options.thresholds.critical_fragmentation_ratio);
  hash.add(options.thresholds.fallback_ratio);
  hash.add(options.out_of_memory.wait_ns);
}

}  // namespace

std::string settings_hash(const Pool& pool, const StatsV1& stats) {
  Hash hash;
  hash.add(stats.limit_bytes);
  hash.add(stats.reserve_bytes);
  hash.add(to_string(static_cast<Backing>(stats.backing)));
  add_runtime(hash, pool.runtime_options());
  for (const std::string& tag : pool.tag_names()) hash.add(tag);
  const auto watched = std::min<std::size_t>(stats.watched_count, kMaxWatchedSizes);
  for (std::size_t i = 0; i < watched; ++i) hash.add(stats.watched[i].bytes);
  return hash.text();
}

}  // namespace gpupool::internal
