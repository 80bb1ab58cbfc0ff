// gpupool.h: every number of a snapshot under its name in gpupool/stats.h; what is counted by an
// enum has the enum's name after a dot.
#include <array>
#include <string>
#include <string_view>

#include "c_api/handle.h"
#include "gpupool/stats.h"

namespace gpupool::internal {
namespace {

struct Number {
  std::string_view name;
  std::uint64_t StatsV1::*field;
};

constexpr Number kNumbers[] = {
    {"time_ns", &StatsV1::time_ns},
    {"start_time_ns", &StatsV1::start_time_ns},
    {"start_unix_ns", &StatsV1::start_unix_ns},
    {"requests", &StatsV1::requests},
    {"hits", &StatsV1::hits},
    {"misses", &StatsV1::misses},
    {"failures", &StatsV1::failures},
    {"fallbacks", &StatsV1::fallbacks},
    {"frees", &StatsV1::frees},
    {"requested_bytes_total", &StatsV1::requested_bytes_total},
    {"driver_calls", &StatsV1::driver_calls},
    {"driver_failures", &StatsV1::driver_failures},
    {"driver_ns", &StatsV1::driver_ns},
    {"driver_wait_ns", &StatsV1::driver_wait_ns},
    {"held_bytes", &StatsV1::held_bytes},
    {"live_requested_bytes", &StatsV1::live_requested_bytes},
    {"waste_bytes", &StatsV1::waste_bytes},
    {"cached_bytes", &StatsV1::cached_bytes},
    {"pending_bytes", &StatsV1::pending_bytes},
    {"free_bytes", &StatsV1::free_bytes},
    {"fallback_bytes", &StatsV1::fallback_bytes},
    {"mapped_free_bytes", &StatsV1::mapped_free_bytes},
    {"pinned_bytes", &StatsV1::pinned_bytes},
    {"metadata_bytes", &StatsV1::metadata_bytes},
    {"limit_bytes", &StatsV1::limit_bytes},
    {"limit_in_force_bytes", &StatsV1::limit_in_force_bytes},
    {"reserve_bytes", &StatsV1::reserve_bytes},
    {"device_total_bytes", &StatsV1::device_total_bytes},
    {"device_free_bytes", &StatsV1::device_free_bytes},
    {"device_read_time_ns", &StatsV1::device_read_time_ns},
    {"address_range_bytes", &StatsV1::address_range_bytes},
    {"address_range_used_bytes", &StatsV1::address_range_used_bytes},
    {"largest_free_block_bytes", &StatsV1::largest_free_block_bytes},
    {"largest_satisfiable_bytes", &StatsV1::largest_satisfiable_bytes},
    {"watched_count", &StatsV1::watched_count},
    {"peak_requested_bytes", &StatsV1::peak_requested_bytes},
    {"peak_held_bytes", &StatsV1::peak_held_bytes},
    {"largest_free_block_at_peak_held_bytes", &StatsV1::largest_free_block_at_peak_held_bytes},
    {"window_peak_requested_bytes", &StatsV1::window_peak_requested_bytes},
    {"window_peak_held_bytes", &StatsV1::window_peak_held_bytes},
    {"live_blocks", &StatsV1::live_blocks},
    {"runs", &StatsV1::runs},
    {"chunks", &StatsV1::chunks},
    {"slabs", &StatsV1::slabs},
    {"segments", &StatsV1::segments},
    {"streams", &StatsV1::streams},
    {"thread_caches", &StatsV1::thread_caches},
    {"pages_mapped", &StatsV1::pages_mapped},
    {"pages_unmapped", &StatsV1::pages_unmapped},
    {"pages_recycled", &StatsV1::pages_recycled},
    {"recycle_ns", &StatsV1::recycle_ns},
    {"stale_pages", &StatsV1::stale_pages},
    {"address_ranges", &StatsV1::address_ranges},
    {"splits", &StatsV1::splits},
    {"merges", &StatsV1::merges},
    {"retries", &StatsV1::retries},
    {"maintain_steps", &StatsV1::maintain_steps},
    {"epochs_closed", &StatsV1::epochs_closed},
    {"events_recorded", &StatsV1::events_recorded},
    {"stream_waits", &StatsV1::stream_waits},
    {"stream_mismatches", &StatsV1::stream_mismatches},
    {"out_of_memory_wait_ns", &StatsV1::out_of_memory_wait_ns},
    {"wait_option_ns", &StatsV1::wait_option_ns},
    {"guard_fills", &StatsV1::guard_fills},
    {"guard_postponed", &StatsV1::guard_postponed},
    {"recycling_forgone", &StatsV1::recycling_forgone},
    {"closed_calls", &StatsV1::closed_calls},
    {"tag_count", &StatsV1::tag_count},
    {"threshold_required_block_bytes", &StatsV1::threshold_required_block_bytes},
    {"reconfigurations", &StatsV1::reconfigurations},
};

struct Ratio {
  std::string_view name;
  double StatsV1::*field;
};

constexpr Ratio kRatios[] = {
    {"fragmentation_ratio", &StatsV1::fragmentation_ratio},
    {"raw_fragmentation_ratio", &StatsV1::raw_fragmentation_ratio},
    {"slack", &StatsV1::slack},
    {"recycling_wait", &StatsV1::recycling_wait},
    {"threshold_fragmentation_ratio", &StatsV1::threshold_fragmentation_ratio},
};

class Visit {
 public:
  Visit(gpupool_number_visitor visitor, void* context) : visitor_(visitor), context_(context) {}

  void count(std::string_view name, std::uint64_t value) {
    visitor_(std::string(name).c_str(), value, static_cast<double>(value), context_);
  }
  void ratio(std::string_view name, double value) {
    visitor_(std::string(name).c_str(), static_cast<std::uint64_t>(value), value, context_);
  }
  template <class Enum, std::size_t Count>
  void counts(const std::string& name, const std::array<std::uint64_t, Count>& values) {
    for (std::size_t i = 0; i < Count; ++i) {
      count(name + "." + to_string(static_cast<Enum>(i)), values[i]);
    }
  }

 private:
  gpupool_number_visitor visitor_;
  void* context_;
};

void visit(const StatsV1& stats, const std::vector<std::string>& tags, Visit& to) {
  for (const Number& number : kNumbers) to.count(number.name, stats.*number.field);
  for (const Ratio& ratio : kRatios) to.ratio(ratio.name, stats.*ratio.field);
  to.counts<MissReason>("misses_by_reason", stats.misses_by_reason);
  to.counts<MissReason>("failures_by_reason", stats.failures_by_reason);
  to.counts<FallbackReason>("fallbacks_by_reason", stats.fallbacks_by_reason);
  to.counts<Tier>("hits_by_tier", stats.hits_by_tier);
  to.counts<DriverOperation>("driver_calls_by_operation", stats.driver_calls_by_operation);
  to.counts<DriverOperation>("driver_failures_by_operation", stats.driver_failures_by_operation);
  to.counts<ReleaseReason>("released_bytes_by_reason", stats.released_bytes_by_reason);
  to.counts<TrimReason>("trims_by_reason", stats.trims_by_reason);
  to.counts<TrimReason>("trimmed_bytes_by_reason", stats.trimmed_bytes_by_reason);
  to.counts<CrossStreamReuse>("cross_stream_reuse", stats.cross_stream_reuse);
  to.counts<Misuse>("misuses", stats.misuses);
  to.counts<LadderRung>("ladder_tries", stats.ladder_tries);
  to.counts<LadderRung>("ladder_successes", stats.ladder_successes);
  for (std::size_t i = 0; i < tags.size() && i < kMaxTags; ++i) {
    to.count("tag_live_bytes." + tags[i], stats.tag_live_bytes[i]);
  }
}

}  // namespace
}  // namespace gpupool::internal

gpupool_status gpupool_visit_stats(const gpupool_pool* pool, gpupool_number_visitor visitor,
                                   void* context) {
  using gpupool::internal::Visit;
  if (pool == nullptr || visitor == nullptr) {
    return gpupool::internal::null_argument("pool or visitor is NULL");
  }
  return gpupool::internal::guarded([&] {
    Visit to(visitor, context);
    gpupool::internal::visit(pool->pool->stats(), pool->pool->tag_names(), to);
    return GPUPOOL_OK;
  });
}
