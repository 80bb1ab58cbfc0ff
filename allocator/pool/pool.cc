// A pool's beginning and end, and the public methods, each one step to the implementation.
#include "gpupool/pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/invalid.h"
#include "gpupool/process.h"
#include "gpupool/size_text.h"
#include "pool/closed_pool.h"
#include "pool/option_faults.h"
#include "pool/own_allocation.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::invalid;
using internal::kPageBytes;
using internal::MutexLock;

namespace {

static_assert(kMinCapacityBytes == kPageBytes);

bool is_label(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  });
}

/// Whole pages, where the limit has them: an odd number of bytes may be given for both, and what
/// is over beyond the last page is no page to hold.
std::uint64_t reserve_from(std::uint64_t asked_bytes, std::uint64_t limit_bytes) {
  const std::uint64_t rounded =
      internal::round_up(std::min(asked_bytes, std::uint64_t{1} << 60), kPageBytes);
  if (asked_bytes > limit_bytes) return rounded;
  return std::min(rounded, internal::round_down(limit_bytes, kPageBytes));
}

/// A limit is raised to no more, so that the tables of a pool that begins with as much stay small.
constexpr std::uint64_t kMostRaisedBytes = std::uint64_t{1} << 40;

/// A number that no other pool of the process has or had.
std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::uint64_t unix_now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
}

Result<void, Status> find_trim_fault(const TrimOptions& trim) {
  if (trim.idle_after_ns > 0 && trim.idle_bytes_per_second == 0) {
    return invalid("trim.idle_bytes_per_second: above 0, where trim.idle_after_ns is");
  }
  if (trim.idle_bytes_per_second > kMaxTrimBytes) {
    return invalid("trim.idle_bytes_per_second: up to " + format_size(kMaxTrimBytes));
  }
  if (trim.keep_device_free_bytes > kMaxTrimBytes) {
    return invalid("trim.keep_device_free_bytes: up to " + format_size(kMaxTrimBytes));
  }
  return {};
}

Result<void, Status> find_runtime_fault(const RuntimeOptions& options) {
  if (!(options.slack >= 0.0 && options.slack <= 1.0)) {
    return invalid("slack: a fraction from 0 to 1");
  }
  if (!(options.recycling_wait >= 0.0 && options.recycling_wait <= 1.0)) {
    return invalid("recycling_wait: a fraction from 0 to 1");
  }
  const Thresholds& thresholds = options.thresholds;
  for (const auto& [name, ratio] : {
           std::pair{"fragmentation_ratio", thresholds.fragmentation_ratio},
           std::pair{"critical_fragmentation_ratio", thresholds.critical_fragmentation_ratio},
           std::pair{"fallback_ratio", thresholds.fallback_ratio},
       }) {
    if (!(ratio >= 0.0 && ratio <= 1.0)) {
      return invalid(std::string("thresholds.") + name + ": from 0 to 1");
    }
  }
  if (options.out_of_memory.wait_ns > kMaxOutOfMemoryWaitNs) {
    return invalid("out_of_memory.wait_ns: up to an hour");
  }
  return find_trim_fault(options.trim);
}

/// Left as it is until the process ends, and known to leak checkers.
void abandon(void* impl) {
  struct Abandoned {
    void* impl = nullptr;
    Abandoned* next = nullptr;
  };
  static std::atomic<Abandoned*> last{nullptr};
  auto* const node = new Abandoned{impl, last.load()};
  while (!last.compare_exchange_weak(node->next, node)) {
  }
}

}  // namespace

// The beginning.

Result<void, Status> Pool::Impl::find_fault(const PoolOptions& options) {
  if (!is_label(options.name)) return invalid("name: 1 to 64 of A-Z a-z 0-9 _ . -");
  if (options.tags.size() > kMaxTags) return invalid("tags: at most 32");
  for (std::size_t i = 0; i < options.tags.size(); ++i) {
    const std::string& tag = options.tags[i];
    if (!is_label(tag)) return invalid("tags: each 1 to 64 of A-Z a-z 0-9 _ . -");
    if (tag == "untagged") return invalid("tags: 'untagged' is the name of what has no tag");
    if (std::find(options.tags.begin(), options.tags.begin() + static_cast<std::ptrdiff_t>(i),
                  tag) != options.tags.begin() + static_cast<std::ptrdiff_t>(i)) {
      return invalid("tags: '" + tag + "' is there twice");
    }
  }
  if (options.watched_sizes.size() > kMaxWatchedSizes) return invalid("watched_sizes: at most 4");
  if (auto fault = internal::find_debug_fault(options); !fault.ok()) return fault;
  if (auto fault =
          internal::find_peer_fault(options.peers, options.backing, options.runtime.alias_reuse);
      !fault.ok()) {
    return fault;
  }
  return find_runtime_fault(options.runtime);
}

namespace {

/// What a request of each watched size takes.
std::vector<std::uint64_t> watched_blocks(const PoolOptions& options) {
  std::vector<std::uint64_t> blocks = options.watched_sizes;
  for (std::uint64_t& bytes : blocks) {
    if (options.debug.canary) bytes += std::min(kCanaryBytes, ~bytes);
  }
  return blocks;
}

}  // namespace

internal::PoolState::PoolState(Backend& backend, PoolOptions options)
    : serial_(next_serial()),
      tag_count_(static_cast<std::uint32_t>(options.tags.size())),
      options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : backend.clock()),
      start_time_ns_(clock_.now_ns()),
      driver_(backend, clock_, options_.observer),
      guards_(backend, options_.debug),
      keeps_none_at_hand_(options_.verify_streams || guards_.is_on()),
      process_epoch_(process_epoch()),
      events_(backend),
      tiers_(streams_, watched_blocks(options_)),
      private_pools_(caches_) {}

Pool::Impl::Impl(Backend& backend, PoolOptions options)
    : CrossStream(backend, std::move(options)) {}

Result<void, Status> Pool::Impl::start() {
  if (auto fault = find_fault(options_); !fault.ok()) return fault;
  Backend& backend = driver_.backend();
  if (kPageBytes % backend.granularity_bytes() != 0) {
    return Status{Error::not_supported, "the device's page size does not divide 2MiB"};
  }
  if (auto fault = internal::find_device_fault(options_, backend); !fault.ok()) return fault;
  driver_.set_peers(options_.peers);
  driver_.set_notes(guards_.notes());
  watch_process();
  const auto limit = limit_from(options_.capacity, 0);
  if (!limit.ok()) return limit.error();
  const std::uint64_t limit_bytes = limit.value();
  options_.reserve_bytes = reserve_from(options_.reserve_bytes, limit_bytes);
  if (options_.reserve_bytes > limit_bytes) {
    return invalid("reserve: " + format_size(options_.reserve_bytes) +
                   " is more than the capacity, " + format_size(limit_bytes));
  }
  auto arena = options_.backing == Backing::vmm ? make_vmm_arena(driver_, limit_bytes)
                                                : make_segment_arena(driver_, limit_bytes);
  if (!arena.ok()) {
    return Status{arena.error(),
                  "the addresses for " + format_size(limit_bytes) + " cannot be reserved"};
  }
  limit_bytes_.set(limit_bytes);
  arena_ = std::move(arena).value();
  addresses_ = &arena_->addresses();
  planner_.emplace(*arena_, tiers_.runs());
  range_base_ = addresses_->range_base();
  range_granules_ = addresses_->range_units() * internal::kGranulesPerUnit;
  MutexLock growth(growth_mu_);
  refresh_device_memory();
  {
    MutexLock lock(mu_);
    const std::uint64_t most = std::min(arena_->most_held_bytes(), kMostRaisedBytes);
    most_capacity_bytes_ = std::max(limit_bytes, std::min(most, counted_.device_total_bytes));
    if (!tiers_.reserve(arena_->addresses(), arena_->page_capacity() * internal::kUnitsPerPage,
                        most_capacity_bytes_ / internal::kUnitBytes + internal::kUnitsPerPage,
                        *arena_) ||
        !caches_.reserve()) {
      return Status{Error::out_of_memory, "no host address space for the pool's tables"};
    }
    recycler_.emplace(*arena_, tiers_.runs());
    streams_.keep_apart(options_.runtime.policy == CrossStreamPolicy::never);
    tiers_.runs().track_pages(tracks_pages());
    orphan_ = caches_.open_record();
    aging_start_ns_ = start_time_ns_;
    restart_aging();
    start_unix_ns_ = unix_now_ns();
  }
  is_started_ = true;
  if (options_.reserve_bytes > 0) {
    const internal::PageSpan pages{0, options_.reserve_bytes / kPageBytes};
    internal::PageSupply supply;
    {
      MutexLock lock(mu_);
      supply = recycler_->new_pages({pages}, options_.runtime);
    }
    const auto backed = back_pages(supply);
    if (!backed.ok()) {
      return Status{backed.error(), "the reserve of " + format_size(options_.reserve_bytes) +
                                        " cannot be had from the device"};
    }
    MutexLock lock(mu_);
    add_pages(supply);
    note_held();
  }
  return {};
}

// The end.

Pool::Impl::~Impl() {
  if (is_started_) shut_down();
}

void Pool::Impl::shut_down() {
  // Whoever wants to know how it ended stops it before.
  static_cast<void>(stop_recording().ok());
  forget_threads();
  // Unmapping does not wait for running work, which so must be done: on what was freed, caches
  // included, and on what leaked, whatever stream uses it.
  drain_patiently();
  std::optional<MisuseReport> leak;
  {
    MutexLock lock(mu_);
    const internal::CounterTotals totals = caches_.totals();
    if (const std::uint64_t blocks = totals.live_blocks(); blocks > 0) {
      leak =
          count_misuse({.kind = Misuse::leak, .block_bytes = totals.live_bytes(), .given = blocks});
    }
    if (leak.has_value()) streams_.open_all();
    private_pools_.release_all();
    streams_.holds().clear();
  }
  wait_for_all_work();
  finish_releases(true);
  if (leak.has_value()) report_misuse(*leak);

  // From here on errors are of no use: the driver may be unloading at process exit, which gives
  // everything back by itself.
  MutexLock growth(growth_mu_);
  wait_for_maintenance();
  MutexLock lock(mu_);
  for (const internal::Stale& stale : arena_->take_stale(streams_, ~std::uint64_t{0})) {
    static_cast<void>(arena_->unmap(stale.address, stale.pages.count * kPageBytes));
  }
  std::vector<internal::Mapping> stuck = arena_->stuck();
  for (std::uint64_t page = 0; page < arena_->high_water();) {
    if (!arena_->is_backed(page)) {
      ++page;
      continue;
    }
    const internal::Mapping mapping = arena_->mapping_of(page);
    static_cast<void>(arena_->unback(mapping, stuck));
    page = mapping.pages.end();
  }
  for (const internal::Mapping& mapping : stuck) {
    std::vector<internal::Mapping> ignored;
    if (mapping.address == 0) static_cast<void>(arena_->unback(mapping, ignored));
  }
  internal::Fallback fallback;
  while (fallbacks_.take_any(fallback)) {
    static_cast<void>(internal::give_back_own(driver_, fallback));
  }
}

// Note [Fork and exit]
// In a forked child every call is refused, counted where that takes no lock, and touches nothing:
// the driver is the parent's, and a lock may be held by a thread that there is not. What the fork
// has emptied is what was at hand, so that no hit is served either.
// Once the process exits, from the end of the main thread's own objects on, nothing is asked of the
// driver any more, which may be gone, and takes all back by itself: requests that no cache serves
// are refused, a free is as good as done, and statistics go on. A pool that ends then is left as it
// is, but for the file of its recording.

bool internal::PoolState::is_closed_by_now() noexcept {
  const ProcessState state = process_state_since(process_epoch_);
  if (state == ProcessState::forked) refused_calls_.fetch_add(1, std::memory_order_relaxed);
  return state != ProcessState::same;
}

// The public methods.

Result<std::unique_ptr<Pool>, Status> Pool::create(Backend& backend, PoolOptions options) {
  auto impl = std::make_unique<Impl>(backend, std::move(options));
  if (auto started = impl->start(); !started.ok()) return started.error();
  return std::unique_ptr<Pool>(new Pool(std::move(impl)));
}

Pool::Pool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pool::~Pool() {
  if (!impl_->is_closed()) return;
  // Whoever wants to know how it ended stops it before.
  if (!impl_->is_forked()) static_cast<void>(impl_->stop_recording().ok());
  abandon(impl_.release());
}

Result<StreamRef> Pool::adopt_stream(RawStream stream) {
  if (impl_->is_closed()) return Error::not_supported;
  return impl_->adopt_stream(stream);
}
bool Pool::release_stream(StreamRef stream) {
  return !impl_->is_closed() && impl_->release_stream(stream);
}

Result<void*> Pool::allocate(const AllocationRequest& request, StreamRef stream) {
  return impl_->allocate_cold(request, stream.state(), false);
}
Result<void*> Pool::allocate_raw(const AllocationRequest& request, RawStream stream) {
  return impl_->allocate_raw(request, stream);
}
bool Pool::deallocate_raw(void* pointer, std::size_t bytes, RawStream stream) {
  return impl_->deallocate_raw(pointer, bytes, stream);
}
bool Pool::record_stream(void* pointer, StreamRef stream) {
  return !impl_->is_closed() && impl_->record_use(pointer, stream.state(), {}, true);
}
bool Pool::record_use(void* pointer, StreamRef stream) {
  return !impl_->is_closed() && impl_->record_use(pointer, stream.state(), {}, false);
}
bool Pool::record_raw(void* pointer, RawStream stream, bool at_free) {
  if (impl_->is_closed()) return false;
  CaptureState capture = CaptureState::none;
  internal::StreamState* const state = impl_->find_or_adopt(stream, &capture);
  return impl_->record_use(pointer, state, capture, at_free);
}
bool Pool::note_dependency(StreamRef source, StreamRef destination) {
  return !impl_->is_closed() && impl_->note_dependency(source, destination);
}

Result<std::size_t> Pool::find_size(const void* pointer) const {
  if (impl_->is_forked()) return Error::not_supported;
  return impl_->find_size(pointer);
}
Fit Pool::would_fit(std::size_t bytes, StreamRef stream) const {
  return impl_->is_forked() ? Fit::no : *impl_->would_fit(bytes, stream);
}
std::optional<Fit> Pool::would_fit_on(std::size_t bytes, std::uint64_t stream_id) const {
  if (stream_id == 0 || impl_->is_forked()) return std::nullopt;
  return impl_->would_fit(bytes, StreamRef(), stream_id);
}
StatsV1 Pool::stats() const {
  if (!impl_->is_forked()) return impl_->stats();
  StatsV1 stats;
  stats.closed_calls = impl_->refused_calls_.load();
  return stats;
}
void Pool::visit_blocks(const BlockVisitor& visitor) const {
  if (!impl_->is_forked()) impl_->visit_blocks(visitor);
}
void Pool::visit_blocks_in_parts(const BlockVisitor& visitor) const {
  if (!impl_->is_forked()) impl_->visit_blocks_in_parts(visitor);
}
FailureReport Pool::last_failure() const {
  if (!impl_->is_forked()) return impl_->last_failure();
  FailureReport report;
  report.happened = true;
  report.error = Error::not_supported;
  report.reason = MissReason::size;
  report.is_process_gone = true;
  return report;
}
Result<Tag> Pool::find_tag(std::string_view name) const {
  const auto& tags = impl_->options().tags;
  const auto found = std::find(tags.begin(), tags.end(), name);
  if (found == tags.end()) return Error::invalid_argument;
  return Tag(static_cast<std::uint8_t>(found - tags.begin()));
}
const std::string& Pool::name() const noexcept { return impl_->options().name; }
const std::vector<std::string>& Pool::tag_names() const noexcept { return impl_->options().tags; }
const DeviceInfo& Pool::device() const noexcept { return impl_->device(); }
RuntimeOptions Pool::runtime_options() const {
  return impl_->is_forked() ? impl_->options().runtime : impl_->runtime_options();
}

std::uint64_t Pool::trim(std::uint64_t target_held_bytes, TrimReason reason) {
  return impl_->is_closed() ? 0 : impl_->trim(target_held_bytes, reason);
}
Result<void, Status> Pool::reconfigure(const RuntimeOptions& options) {
  if (impl_->is_forked()) return internal::closed_pool(true);
  return impl_->reconfigure(options);
}
Result<void, Status> Pool::set_capacity(CapacityLimit capacity) {
  if (impl_->is_closed()) return internal::closed_pool(impl_->is_forked());
  return impl_->set_capacity(capacity);
}
Result<void, Status> Pool::record(const std::string& path, RecordOptions options) {
  if (impl_->is_forked()) return internal::closed_pool(true);
  return impl_->start_recording(path, options);
}
Result<RecordReport, Status> Pool::stop_recording() {
  if (impl_->is_forked()) return internal::closed_pool(true);
  return impl_->stop_recording();
}
MaintainReport Pool::maintain(std::chrono::nanoseconds budget) {
  return impl_->is_closed() ? MaintainReport() : impl_->maintain(budget);
}
std::uint64_t Pool::drain_caches() { return impl_->is_closed() ? 0 : impl_->drain_caches(); }
void Pool::reset_peaks() {
  if (!impl_->is_forked()) impl_->reset_peaks();
}
void Pool::check_invariants() const {
  if (!impl_->is_forked()) impl_->check_invariants();
}

}  // namespace gpupool
