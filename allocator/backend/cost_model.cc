#include "backend/cost_model.h"

#include <cmath>
#include <cstddef>

namespace gpupool::internal {
namespace {

struct Point {
  std::uint64_t bytes;
  double ns;
};

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

constexpr Point kReserve[] = {{2 * kMiB, 900}, {32 * kMiB, 3400}, {256 * kMiB, 2800}, {kGiB, 4300}};
constexpr Point kCreate[] = {
    {2 * kMiB, 10600}, {32 * kMiB, 11000}, {256 * kMiB, 33000}, {kGiB, 97000}};
constexpr Point kMap[] = {{2 * kMiB, 1000}, {32 * kMiB, 950}, {256 * kMiB, 1000}, {kGiB, 1500}};
constexpr Point kSetAccess[] = {
    {2 * kMiB, 24000}, {32 * kMiB, 51000}, {256 * kMiB, 54000}, {kGiB, 88000}};
constexpr Point kUnmap[] = {
    {2 * kMiB, 16000}, {32 * kMiB, 25000}, {256 * kMiB, 25000}, {kGiB, 36000}};
constexpr Point kRelease[] = {
    {2 * kMiB, 12000}, {32 * kMiB, 36000}, {256 * kMiB, 146000}, {kGiB, 516000}};
constexpr Point kAllocate[] = {
    {2 * kMiB, 41000}, {32 * kMiB, 43000}, {256 * kMiB, 86000}, {kGiB, 985000}};
constexpr Point kDeallocate[] = {
    {2 * kMiB, 35000}, {32 * kMiB, 46000}, {256 * kMiB, 168000}, {kGiB, 1054000}};

constexpr double kFurtherSetAccessNs = 27000;
constexpr double kFurtherUnmapNs = 18000;

template <std::size_t kCount>
double interpolate(const Point (&points)[kCount], std::uint64_t bytes) noexcept {
  if (bytes <= points[0].bytes) return points[0].ns;
  for (std::size_t i = 1; i < kCount; ++i) {
    if (bytes > points[i].bytes) continue;
    const double low = std::log2(static_cast<double>(points[i - 1].bytes));
    const double high = std::log2(static_cast<double>(points[i].bytes));
    const double share = (std::log2(static_cast<double>(bytes)) - low) / (high - low);
    return points[i - 1].ns + share * (points[i].ns - points[i - 1].ns);
  }
  return points[kCount - 1].ns;
}

/// The first mapping by the table, as if the span were cut evenly, and a fixed cost for the rest.
template <std::size_t kCount>
double spanning(const Point (&points)[kCount], std::uint64_t bytes, std::uint64_t mappings,
                double further_ns) noexcept {
  if (mappings <= 1) return interpolate(points, bytes);
  return interpolate(points, bytes / mappings) + static_cast<double>(mappings - 1) * further_ns;
}

double cost_ns(BackendCall call, std::uint64_t bytes, std::uint64_t mappings) noexcept {
  switch (call) {
    case BackendCall::memory_info: return 5600;
    case BackendCall::reserve_address: return interpolate(kReserve, bytes);
    // Not measured; taken as reserving, whose book-keeping it undoes.
    case BackendCall::free_address: return interpolate(kReserve, bytes);
    case BackendCall::create: return interpolate(kCreate, bytes);
    case BackendCall::release: return interpolate(kRelease, bytes);
    case BackendCall::map: return interpolate(kMap, bytes);
    case BackendCall::set_access: return spanning(kSetAccess, bytes, mappings, kFurtherSetAccessNs);
    case BackendCall::unmap: return spanning(kUnmap, bytes, mappings, kFurtherUnmapNs);
    case BackendCall::allocate: return interpolate(kAllocate, bytes);
    case BackendCall::deallocate: return interpolate(kDeallocate, bytes);
    case BackendCall::stream_id: return 28;
    case BackendCall::capture_state: return 31;
    case BackendCall::create_event: return 300;
    case BackendCall::destroy_event: return 230;
    case BackendCall::record_event: return 420;
    case BackendCall::query_event: return 350;
    case BackendCall::wait_event: return 450;
    case BackendCall::synchronize_event: return 350;
    // Not measured; taken as asking the state, and as waiting for an event that is complete.
    case BackendCall::capture_id: return 31;
    case BackendCall::synchronize_device: return 350;
    // Not measured; taken as a launch, and a copy of a few bytes with the wait for it.
    case BackendCall::fill: return 2500;
    case BackendCall::read: return 9000;
  }
  return 0;
}

}  // namespace

std::uint64_t modelled_cost_ns(BackendCall call, std::uint64_t bytes,
                               std::uint64_t mappings) noexcept {
  return static_cast<std::uint64_t>(std::llround(cost_ns(call, bytes, mappings)));
}

}  // namespace gpupool::internal
