// The most that a pool may hold: how many bytes an option means, and changing it while running.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>

#include "base/invalid.h"
#include "gpupool/size_text.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::invalid;
using internal::kPageBytes;
using internal::MutexLock;

Result<std::uint64_t, Status> Pool::Impl::limit_from(const CapacityLimit& capacity,
                                                     std::uint64_t held) const {
  const auto memory = driver_.backend().memory_info();
  if (!memory.ok()) {
    return Status{Error::backend_failure, "the device does not say how much memory it has"};
  }
  if (const auto* bytes = std::get_if<std::uint64_t>(&capacity)) {
    if (*bytes < kMinCapacityBytes) {
      return invalid("capacity: " + format_size(*bytes) + " is less than one page, " +
                     format_size(kMinCapacityBytes));
    }
    const std::uint64_t total = memory.value().total_bytes;
    if (*bytes > total) {
      return invalid("capacity: " + format_size(*bytes) + " is more than the device has, " +
                     format_size(total));
    }
    return *bytes;
  }
  const double fraction = std::get<double>(capacity);
  if (!(fraction > 0.0 && fraction <= 1.0)) {
    return invalid("capacity: a fraction above 0 and up to 1, or bytes");
  }
  // What the pool has itself is no less there for it.
  const std::uint64_t there = memory.value().free_bytes + held;
  const auto bytes = static_cast<std::uint64_t>(std::floor(static_cast<double>(there) * fraction));
  const std::uint64_t limit = internal::round_down(bytes, kPageBytes);
  if (limit == 0) return invalid("capacity: less than one page, 2MiB, of what the device has free");
  return limit;
}

Result<void, Status> Pool::Impl::set_capacity(const CapacityLimit& capacity) {
  // With no growth under way, whose plan counts on what the limit was when it was made.
  MutexLock growth(growth_mu_);
  std::uint64_t held = 0;
  {
    MutexLock lock(mu_);
    held = held_bytes();
  }
  const auto limit = limit_from(capacity, held);
  if (!limit.ok()) return limit.error();
  if (limit.value() < options_.reserve_bytes) {
    return invalid("capacity: " + format_size(limit.value()) + " is less than the reserve, " +
                   format_size(options_.reserve_bytes));
  }
  if (limit.value() > most_capacity_bytes_) {
    return invalid("capacity: " + format_size(limit.value()) + " is more than the " +
                   format_size(most_capacity_bytes_) +
                   " that the pool has addresses for, which it was created with fewer bytes for");
  }
  MutexLock lock(mu_);
  options_.capacity = capacity;
  limit_bytes_.set(limit.value());
  held_when_limited_ = held_bytes();
  // What is held beyond it goes back with the next step of maintenance, as far as it is empty.
  owes_others_ = missing_for_others() > 0;
  ++counted_.reconfigurations;
  emit({.kind = SlowPathEventKind::reconfigured});
  return {};
}

}  // namespace gpupool
