#include <cmath>
#include <string>

#include "gpupool/pool.h"
#include "gpupool/size_text.h"

namespace gpupool {
namespace {

/// Two decimals in the unit a person would use: a report is read, not parsed.
std::string human(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  const auto hundredths = static_cast<std::uint64_t>(std::llround(value * 100));
  std::string text = std::to_string(hundredths / 100);
  if (unit > 0) {
    const std::string decimals = std::to_string(hundredths % 100);
    text += "." + std::string(2 - decimals.size(), '0') + decimals;
  }
  return text + " " + kUnits[unit];
}

const char* explanation(MissReason reason, Error error) {
  if (error == Error::backend_failure) return "a call of the driver has failed";
  switch (reason) {
    case MissReason::size:
      if (error == Error::limit_exceeded) return "larger than the limit, whatever is free";
      if (error == Error::not_supported) return "not supported in this form";
      return "its size, alignment or stream is not valid here";
    case MissReason::budget: return "the limit or the device is full";
    case MissReason::pending: return "memory that would do is still in use by unfinished work";
    case MissReason::fragmented: return "enough bytes are free, but not in one piece";
    case MissReason::cold: return "the pool would have had to grow";
  }
  return "unknown";
}

}  // namespace

std::string FailureReport::text() const {
  if (!happened) return "no request has failed";
  return std::string(to_string(error)) + ": " + human(requested_bytes) + " requested, reason " +
         to_string(reason) + " (" + explanation(reason, error) + "); limit " + human(limit_bytes) +
         ", held " + human(held_bytes) + " = live " + human(live_requested_bytes) + " + waste " +
         human(waste_bytes) + " + cached " + human(cached_bytes) + " + pending " +
         human(pending_bytes) + " + free " + human(free_bytes) + "; largest free block " +
         human(largest_free_block_bytes) + ", largest request that would have worked " +
         human(largest_satisfiable_bytes) + "; device free " + human(device_free_bytes) + " of " +
         human(device_total_bytes) +
         (is_address_space_used_up ? "; the address space has no room for it" : "");
}

}  // namespace gpupool
