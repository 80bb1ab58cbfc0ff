// What a pool says of itself: statistics, the map of its blocks, and the check of its books.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/duration_bucket.h"
#include "base/heavy_fence.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::kPageBytes;
using internal::kUnitBytes;
using internal::kUnitsPerPage;
using internal::MutexLock;

std::uint64_t Pool::Impl::held_bytes() const { return arena_->held_bytes() + fallbacks_.bytes(); }

std::uint64_t Pool::Impl::limit_in_force() const {
  return std::min(limit_bytes_.get(), held_bytes() + counted_.device_free_bytes);
}

std::uint64_t Pool::Impl::bytes_over_limit() const {
  return held_bytes() - std::min(held_bytes(), limit_bytes_.get());
}

std::uint64_t Pool::Impl::pending_bytes() const {
  return tiers_.runs().pending_bytes() + tiers_.chunk_pending_bytes() + fallbacks_.pending_bytes();
}

std::uint64_t Pool::Impl::free_bytes() const {
  return tiers_.runs().ready_bytes() + tiers_.chunk_free_bytes() - tiers_.chunk_pending_bytes() +
         arena_->stuck_bytes() + leaving_bytes_;
}

internal::PrivatePools::Bytes Pool::Impl::private_bytes() const {
  auto bytes = private_pools_.bytes(
      [&](StreamIndex pseudo) GPUPOOL_REQUIRES(mu_) { return tiers_.chunk_bytes_of(pseudo); },
      [&](StreamIndex pseudo) GPUPOOL_REQUIRES(mu_) { return tiers_.runs().own_bytes(pseudo); });
  // That others are to be waited for as well does not make it anybody else's.
  const std::uint64_t shared = tiers_.runs().shared_pinned_bytes();
  bytes.pinned += shared;
  bytes.free += shared;
  return bytes;
}

std::uint64_t Pool::Impl::movable_pages() const {
  // Where one stream is known, its free runs are ready whatever it is still at.
  const internal::RunTable& runs = tiers_.runs();
  return streams_.has_unfinished() ? runs.idle_pages() : runs.empty_pages();
}

std::uint64_t Pool::Impl::largest_satisfiable(bool exchanges) const {
  const std::uint64_t limit = limit_in_force();
  const std::uint64_t headroom = (limit - std::min(limit, held_bytes())) / kPageBytes;
  const std::uint64_t by_growth =
      exchanges ? (headroom + movable_pages()) * kUnitsPerPage : planner_->largest_units(headroom);
  return std::max(tiers_.runs().largest_ready_units(), by_growth) * kUnitBytes;
}

void Pool::Impl::fill_counts(StatsV1& stats, const internal::CounterTotals& totals) const {
  // Served requests are in the shards, failed ones among the misses, a few in both.
  stats.requests = totals.served() + stats.failures - failed_when_served_;
  stats.hits = stats.requests - stats.misses;
  stats.hits_by_tier = totals.shared_hits;
  stats.hits_by_tier[static_cast<std::size_t>(Tier::cache)] =
      stats.hits -
      std::accumulate(totals.shared_hits.begin(), totals.shared_hits.end(), std::uint64_t{0});
  for (std::uint32_t bin = 0; bin < internal::kBinCount; ++bin) {
    stats.requests_by_size[internal::size_bucket(internal::kBinBytes[bin])] +=
        totals.allocations[bin];
  }
  for (std::size_t log2 = 0; log2 < internal::kSizeLog2; ++log2) {
    stats.requests_by_size[internal::size_bucket(std::uint64_t{1} << log2)] +=
        totals.large_allocations[log2];
  }
  for (std::size_t i = 0; i < kSizeBuckets; ++i) stats.requests_by_size[i] += totals.moved[i];
  stats.frees = totals.freed() - failed_when_served_;
  stats.requested_bytes_total = totals.allocated_bytes;
  stats.live_requested_bytes = totals.live_bytes();
  stats.live_blocks = totals.live_blocks();
  for (std::size_t tag = 0; tag < kMaxTags; ++tag) {
    stats.tag_live_bytes[tag] = totals.live_bytes_of(tag);
  }
  DurationHistogram& hits = stats.allocation_duration[static_cast<std::size_t>(Tier::cache)];
  for (std::size_t i = 0; i < kDurationBuckets; ++i) {
    hits.count[i] += totals.hit_duration.count[i];
  }
  hits.sum_ns += totals.hit_duration.sum_ns;
}

void Pool::Impl::fill_bytes(StatsV1& stats, const internal::CounterTotals& totals) const {
  stats.held_bytes = held_bytes();
  // What is out of the shared tiers is live or cached. Shards that move while they are summed can
  // make the live part look larger than all of it.
  const std::uint64_t live_blocks = std::min(totals.live_block_bytes(), tiers_.out_bytes());
  const std::uint64_t occupied_bytes =
      live_blocks + fallbacks_.bytes() - fallbacks_.pending_bytes();
  stats.live_requested_bytes = std::min(stats.live_requested_bytes, occupied_bytes);
  stats.waste_bytes = occupied_bytes - stats.live_requested_bytes + tiers_.slab_tail_bytes() +
                      arena_->overhead_bytes();
  stats.cached_bytes = tiers_.out_bytes() - live_blocks;
  stats.pending_bytes = pending_bytes();
  stats.free_bytes = free_bytes();
  stats.fallback_bytes = fallbacks_.bytes();
  const internal::PrivatePools::Bytes kept = private_bytes();
  stats.pinned_bytes = kept.pinned;
  // Tails of slabs are waste, not pending, and of no size that matters here.
  stats.unpinned_pending_bytes = stats.pending_bytes - std::min(stats.pending_bytes, kept.free);
  stats.mapped_free_bytes = stats.free_bytes - arena_->stuck_bytes() - leaving_bytes_;
  stats.limit_bytes = limit_bytes_.get();
  stats.limit_in_force_bytes = limit_in_force();
  stats.reserve_bytes = options_.reserve_bytes;
  stats.address_range_bytes = arena_->reserved_pages() * kPageBytes;
  stats.address_range_used_bytes = arena_->high_water() * kPageBytes;
  // What a request may ask for; how much is in pieces is reckoned with all of it.
  const std::uint64_t largest_free = tiers_.runs().largest_ready_units() * kUnitBytes;
  const std::uint64_t largest = largest_satisfiable(options_.runtime.recycling != Recycling::off);
  stats.largest_free_block_bytes = guards_.request_in(largest_free);
  stats.largest_satisfiable_bytes = guards_.request_in(largest);

  const std::uint64_t occupied =
      stats.live_requested_bytes + stats.waste_bytes + stats.pending_bytes + stats.cached_bytes;
  // What the limit has beyond its last whole page nobody could get, however little was in the way.
  const std::uint64_t within =
      stats.limit_in_force_bytes - std::min(stats.limit_in_force_bytes, stats.held_bytes);
  const std::uint64_t usable_limit = stats.limit_in_force_bytes - within % kPageBytes;
  const std::uint64_t available = usable_limit - std::min(usable_limit, occupied);
  if (available > 0 && available >= stats.limit_in_force_bytes / 100) {
    stats.fragmentation_ratio =
        std::max(0.0, 1.0 - static_cast<double>(largest) / static_cast<double>(available));
  }
  if (stats.mapped_free_bytes > 0) {
    stats.raw_fragmentation_ratio =
        1.0 - static_cast<double>(largest_free) / static_cast<double>(stats.mapped_free_bytes);
  }
  for (std::size_t i = 0; i < stats.watched_count; ++i) {
    stats.watched[i].fits = stats.watched[i].bytes <= stats.largest_satisfiable_bytes;
  }
}

StatsV1 Pool::Impl::stats() {
  MutexLock lock(mu_);
  // A peak that is shown stays.
  fold_peaks();
  StatsV1 stats = counted_;
  const std::uint64_t now = pool_time();
  stats.time_ns = now;
  stats.start_time_ns = start_time_ns_;
  stats.start_unix_ns = start_unix_ns_;
  tiers_.add_to(stats);
  // The tiers watch the blocks.
  for (WatchedSize& watched : stats.watched) watched.bytes = guards_.request_in(watched.bytes);
  driver_.add_to(stats);
  const internal::CounterTotals totals = caches_.totals();
  fill_counts(stats, totals);
  fill_bytes(stats, totals);
  const auto peaks = peak_window_.read(now);
  stats.window_peak_requested_bytes = peaks.requested_bytes;
  stats.window_peak_held_bytes = std::max(peaks.held_bytes, stats.held_bytes);
  stats.metadata_bytes =
      tiers_.metadata_bytes() + arena_->metadata_bytes() + caches_.metadata_bytes();
  stats.segments = arena_->mapping_count() + fallbacks_.count();
  stats.streams = streams_.stream_count();
  stats.thread_caches = caches_.cache_count();
  stats.has_asymmetric_claims = internal::has_heavy_fence() ? 1 : 0;
  stats.pages_mapped = arena_->pages_backed_total();
  stats.pages_unmapped = arena_->pages_returned_total();
  stats.pages_recycled = recycler_->recycled_pages();
  stats.stale_pages = arena_->stale_pages();
  stats.address_ranges = arena_->addresses().range_count();
  stats.epochs_closed = streams_.epochs_closed();
  stats.events_recorded = streams_.epochs_closed();
  stats.stream_mismatches = streams_.mismatches();
  stats.guard_fills = guards_.fills();
  stats.guard_postponed = guards_.postponed();
  stats.tag_count = options_.tags.size();
  stats.recycling = static_cast<std::uint8_t>(options_.runtime.recycling);
  stats.policy = static_cast<std::uint8_t>(options_.runtime.policy);
  stats.backing = static_cast<std::uint8_t>(options_.backing);
  stats.alias_reuse = static_cast<std::uint8_t>(options_.runtime.alias_reuse);
  stats.slack = options_.runtime.slack;
  stats.recycling_wait = options_.runtime.recycling_wait;
  const Thresholds& thresholds = options_.runtime.thresholds;
  stats.threshold_fragmentation_ratio = thresholds.fragmentation_ratio;
  stats.threshold_required_block_bytes = thresholds.required_block_bytes;
  stats.threshold_critical_fragmentation_ratio = thresholds.critical_fragmentation_ratio;
  stats.threshold_fallback_ratio = thresholds.fallback_ratio;
  stats.wait_option_ns = options_.runtime.out_of_memory.wait_ns;
  return stats;
}

FailureReport Pool::Impl::last_failure() const {
  MutexLock lock(mu_);
  return last_failure_;
}

RuntimeOptions Pool::Impl::runtime_options() const {
  MutexLock lock(mu_);
  return options_.runtime;
}

Result<std::size_t> Pool::Impl::find_size(const void* pointer) const {
  const auto address = reinterpret_cast<DeviceAddress>(pointer);
  MutexLock lock(mu_);
  if (const auto unit = arena_->find_unit(address)) {
    const auto found = tiers_.find(*unit, address % kUnitBytes);
    if (!found.block.exists() || !found.is_start) return Error::invalid_argument;
    const internal::BlockRecord& record = tiers_.record(found.block);
    if (!record.load().is_live()) return Error::invalid_argument;
    return static_cast<std::size_t>(record.requested(tiers_.bytes_of(found.block)));
  }
  const internal::Fallback* fallback = fallbacks_.find(address);
  if (fallback == nullptr || fallback->address != address || !fallback->block.load().is_live()) {
    return Error::invalid_argument;
  }
  return static_cast<std::size_t>(fallback->block.requested(fallback->bytes));
}

// A stream that has no reference here is named by its number, if that is not 0.
std::optional<Fit> Pool::Impl::would_fit(std::size_t bytes, StreamRef stream,
                                         std::uint64_t stream_id) {
  MutexLock lock(mu_);
  if (stream_id != 0) {
    stream = StreamRef(streams_.find(stream_id));
    if (!streams_.is_known(stream.state())) return std::nullopt;
  }
  if (bytes == 0) return Fit::now;
  AllocationRequest request;
  request.bytes = bytes;
  if (find_fault(request).has_value()) return Fit::no;
  const bool is_known = streams_.is_known(stream.state());
  const StreamIndex index = is_known ? stream.state()->index() : internal::kAnybody;
  const Shape shape = internal::shape_of(bytes + guards_.canary_bytes(), kDefaultAlignment);
  if (!is_known) tiers_.runs().part();
  Fit fit = find_fit(bytes, shape, index);
  if (fit != Fit::now && fit != Fit::by_growth && !exchanges_pages()) {
    // What would be done as a last resort.
    ++last_resorts_;
    tiers_.runs().track_pages(true);
    fit = find_fit(bytes, shape, index);
    --last_resorts_;
    tiers_.runs().track_pages(tracks_pages());
  }
  if (!is_known) tiers_.runs().unite();
  return fit;
}

Fit Pool::Impl::find_fit(std::size_t bytes, const Shape& shape, StreamIndex index) const {
  const internal::RunTable& runs = tiers_.runs();
  const bool fits_now =
      shape.tier == Tier::size_class ? tiers_.has_slot(shape.size_class, index)
      : shape.tier == Tier::buddy
          ? tiers_.has_buddy(shape.units, index)
          : runs.can_take(shape.units, shape.align_units, index, internal::Reach::everywhere);
  const std::uint32_t units = shape.units_alone();
  const bool fits_as_run = runs.can_take(units, 1, index, internal::Reach::everywhere);
  if (fits_now || (fits_as_run && internal::fills_units(shape, bytes))) return Fit::now;
  if (can_grow(shape, index)) return Fit::by_growth;
  // What is too short for a chunk does for a small block by itself, where the pool cannot grow.
  if (fits_as_run && shape.tier != Tier::run) return Fit::now;
  return fits_once_complete(units, index) ? Fit::after_pending : Fit::no;
}

bool Pool::Impl::fits_once_complete(std::uint32_t units, StreamIndex stream) const {
  const internal::RunTable& runs = tiers_.runs();
  if (runs.largest_free_units() >= units) return true;
  const std::uint64_t limit = limit_in_force();
  const std::uint64_t held = held_bytes() - fallbacks_.pending_bytes();
  const std::uint64_t headroom = (limit - std::min(limit, held)) / kPageBytes;
  const std::uint64_t pages =
      headroom + (exchanges_pages() ? runs.pages_once_complete() : std::uint64_t{0});
  if (internal::divide_up(units, kUnitsPerPage) <= pages) return true;
  if (!exchanges_pages() || !arena_->is_contiguous()) return false;
  const auto needed = planner_->fewest_pages_later(units, stream);
  return needed.has_value() && *needed <= pages;
}

// The books.

void Pool::Impl::check_invariants() const {
  // The driver's books are ahead while a request waits for it.
  if (growth_mu_.try_lock()) {
    MutexLock lock(mu_);
    StatsV1 stats = counted_;
    driver_.add_to(stats);
    const auto& trimmed = stats.trimmed_bytes_by_reason;
    GPUPOOL_CHECK(held_bytes() == driver_.held_bytes());
    GPUPOOL_CHECK(std::accumulate(trimmed.begin(), trimmed.end(), std::uint64_t{0}) ==
                  stats.released_bytes_by_reason[static_cast<std::size_t>(ReleaseReason::trim)]);
    growth_mu_.unlock();
  }
  // One lock for all, so that what is compared is of one moment; the other, since no epoch may be
  // half closed.
  MutexLock events(events_mu_);
  MutexLock lock(mu_);
  std::uint64_t live = 0;
  std::uint64_t live_bytes = 0;
  std::uint64_t cached = 0;
  visit_all([&](const BlockInfo& info) {
    if (info.state == BlockState::live) {
      ++live;
      live_bytes += info.requested_bytes;
    } else if (info.state == BlockState::cached) {
      cached += info.bytes;
    }
  });
  streams_.check_invariants();
  arena_->check_invariants();
  tiers_.check_invariants();
  StatsV1 stats = counted_;
  const internal::CounterTotals totals = caches_.totals();
  fill_counts(stats, totals);
  fill_bytes(stats, totals);
  GPUPOOL_CHECK(live == stats.live_blocks && live_bytes == stats.live_requested_bytes);
  GPUPOOL_CHECK(cached == stats.cached_bytes);
  GPUPOOL_CHECK(stats.held_bytes == stats.live_requested_bytes + stats.waste_bytes +
                                        stats.cached_bytes + stats.pending_bytes +
                                        stats.free_bytes);
  GPUPOOL_CHECK(stats.requests == stats.hits + stats.misses);
  std::uint64_t depot_small_bytes = 0;
  std::uint64_t depot_run_quota = 0;
  for (const auto& depot : depots_) {
    depot_small_bytes += depot->small_bytes();
    depot_run_quota += depot->run_quota();
    GPUPOOL_CHECK(depot->run_bytes() <= depot->run_quota());
  }
  GPUPOOL_CHECK(depot_small_bytes == depot_small_bytes_.load(std::memory_order_relaxed));
  GPUPOOL_CHECK(depot_run_quota == depot_run_quota_.load(std::memory_order_relaxed));
  GPUPOOL_CHECK(depot_run_quota <= options_.cache_large_bytes / 2);
  GPUPOOL_CHECK(stats.held_bytes <= std::max(stats.limit_bytes, held_when_limited_));
}

void Pool::Impl::emit(SlowPathEvent event) const {
  if (options_.observer == nullptr) return;
  event.time_ns = clock_.now_ns();
  options_.observer->on_event(event);
}

}  // namespace gpupool
