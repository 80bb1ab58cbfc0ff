// What is tried, one rung after the other, for a request that nothing at hand serves.
//
// Note [The ladder]
//   allocate.cc    caches, events, a search: under mu_, without memory calls of the driver
//   growth.cc, making_room.cc, under growth_mu_
//                  recycle, grow, trim, as Recycling lets it
//   here, for a request that would fail otherwise
//                  caches and events again, waiting for threads that were passed over; under
//                  Recycling::off, too, what is empty goes back; all of growth again
//                  wait: until work that is pending is complete, and so a search may find something
//                  callback: the program may free something, and all begins anew
//
// Between any two rungs the request is looked for again. Nobody waits for a request that waits: it
// holds no lock, and comes back for one as soon as something has become complete that may serve it.
// So it returns at the earliest moment at which enough is, whichever streams that is of.
#include <algorithm>
#include <thread>

#include "pool/pool_impl.h"

namespace gpupool {

using internal::kPageBytes;
using internal::kUnitBytes;
using internal::LadderLog;
using internal::LadderWait;
using internal::MutexLock;

namespace {

/// Inside a handler of this thread, of whichever pool: a request that fails there calls none.
thread_local bool is_in_handler = false;

/// Lets `ns` go by on the backend's clock; returns how many have, at least that many. A clock that
/// stands still until somebody moves it must not hold up the caller for ever.
std::uint64_t pause(const internal::Driver& driver, std::uint64_t ns) {
  const std::uint64_t start = driver.now_ns();
  driver.backend().wait_until(start + ns);
  const std::uint64_t gone = driver.now_ns() - start;
  if (gone < ns) std::this_thread::sleep_for(std::chrono::nanoseconds(ns - gone));
  return std::max(ns, driver.now_ns() - start);
}

}  // namespace

/// One request on its way up.
class Pool::Impl::Ladder {
 public:
  Ladder(Impl& pool, const AllocationRequest& request, const Shape& shape, StreamState* stream,
         ThreadRecord* record, LadderLog& log)
      : pool_(pool),
        request_(request),
        shape_(shape),
        stream_(stream),
        record_(record),
        log_(log) {}

  /// All rungs but the callback.
  Result<void*> climb() GPUPOOL_EXCLUDES(pool_.mu_);
  FailureReport report(Error error) GPUPOOL_EXCLUDES(pool_.mu_);
  /// Whether the handler asks for a retry.
  bool ask_handler(const FailureReport& report) GPUPOOL_EXCLUDES(pool_.mu_);

 private:
  /// Pages are kept track of under Recycling::off, too, as long as it lives: so what is empty can
  /// be given back for a request that is about to fail.
  class LastResort {
   public:
    explicit LastResort(Impl& pool) : pool_(pool) { change(1); }
    ~LastResort() { change(-1); }
    LastResort(const LastResort&) = delete;
    LastResort& operator=(const LastResort&) = delete;

   private:
    void change(int by) {
      MutexLock lock(pool_.mu_);
      pool_.last_resorts_ += by;
      pool_.tiers_.runs().track_pages(pool_.tracks_pages());
    }
    Impl& pool_;
  };

  /// What tells whether anything has changed that may serve the request.
  struct Books {
    std::uint64_t held = 0;
    std::uint64_t free = 0;
    std::uint64_t pending = 0;
    std::uint64_t epochs_completed = 0;
    bool operator==(const Books&) const = default;
  };

  Result<void*> search_with_driver() GPUPOOL_REQUIRES(pool_.growth_mu_) {
    return pool_.allocate_with_driver(request_, shape_, stream_, record_, log_);
  }
  Fit find_fit() const GPUPOOL_REQUIRES(pool_.mu_) {
    return pool_.find_fit(request_.bytes, shape_, stream_->index());
  }
  /// Tries again after what nobody waited for so far; nothing where nothing has changed.
  std::optional<Result<void*>> search_patiently(std::uint64_t completed_before)
      GPUPOOL_EXCLUDES(pool_.mu_);
  std::uint64_t epochs_completed() const GPUPOOL_EXCLUDES(pool_.mu_);
  /// What other threads gave back while this one was with the driver; and, as a last resort, what
  /// was empty all the time.
  bool fits_by_now() const GPUPOOL_EXCLUDES(pool_.mu_);
  /// Until another search may serve the request; false: it is not to be waited for, or no longer.
  bool wait_for_enough() GPUPOOL_EXCLUDES(pool_.mu_);
  /// How long it may go on waiting.
  std::uint64_t time_left_ns() const GPUPOOL_EXCLUDES(pool_.mu_);
  /// Waits once; whether another search may serve the request by now.
  bool look_after_pause(std::uint64_t pause_ns) GPUPOOL_EXCLUDES(pool_.mu_);
  Books books() const GPUPOOL_REQUIRES(pool_.mu_) {
    return {pool_.held_bytes(), pool_.free_bytes(), pool_.pending_bytes(),
            pool_.streams_.epochs_completed()};
  }
  /// Notes whether it could; what was freed since events were recorded has them first.
  void learn_whether_it_may_fit() GPUPOOL_EXCLUDES(pool_.mu_);
  /// Whether it could be served once the work is complete that an event will tell of.
  bool fits_once_awaited() const GPUPOOL_REQUIRES(pool_.mu_);
  bool is_contiguous() const noexcept {
    return request_.allocation_class == AllocationClass::contiguous;
  }

  Impl& pool_;
  const AllocationRequest& request_;
  const Shape& shape_;
  StreamState* const stream_;
  ThreadRecord* const record_;
  LadderLog& log_;
  LadderWait wait_;
  Books seen_;
  bool may_fit_ = false;  // as of then
};

Result<void*> Pool::Impl::allocate_slowly(const AllocationRequest& request, const Shape& shape,
                                          StreamState* stream, ThreadRecord* record,
                                          LadderLog& log) {
  for (;;) {
    const std::uint64_t start = driver_.now_ns();
    Ladder ladder(*this, request, shape, stream, record, log);
    const Result<void*> result = ladder.climb();
    if (result.ok() || stream->is_released()) {
      MutexLock lock(mu_);
      counted_.driver_wait_ns += driver_.now_ns() - start;
      log.add_to(counted_, result.ok());
      if (result.ok()) return result;
      return refuse_stream(request, stream);
    }
    {
      MutexLock lock(mu_);
      counted_.driver_wait_ns += driver_.now_ns() - start;
    }
    const FailureReport report = ladder.report(result.error());
    if (ladder.ask_handler(report)) continue;
    MutexLock lock(mu_);
    log.add_to(counted_, false);
    return fail(report);
  }
}

Result<void*> Pool::Impl::Ladder::climb() {
  std::uint64_t completed_before = 0;
  Result<void*> result = Error::out_of_memory;
  {
    MutexLock growth(pool_.growth_mu_);
    completed_before = epochs_completed();
    result = search_with_driver();
  }
  if (result.ok()) return result;
  const LastResort last_resort(pool_);
  if (const auto found = search_patiently(completed_before)) result = *found;
  while (!result.ok() && result.error() == Error::out_of_memory && wait_for_enough()) {
    MutexLock growth(pool_.growth_mu_);
    log_.note(LadderRung::trim, pool_.free_complete_fallbacks());
    result = search_with_driver();
  }
  return result;
}

std::optional<Result<void*>> Pool::Impl::Ladder::search_patiently(std::uint64_t completed_before) {
  // What was freed is out of reach, and fallbacks are held, until their work is known complete; and
  // nobody may have looked, or only a thread that this one did not wait for. To wait for it now
  // must not hold up who can be served by growth. Nor were caches waited for whose owners the
  // scheduler had stopped inside.
  const std::uint64_t drained = pool_.drain_patiently();
  log_.note(LadderRung::caches, drained);
  {
    MutexLock lock(pool_.mu_);
    pool_.pause_to_complete_work(Patience::full, &log_);
  }
  const std::uint64_t ended = pool_.finish_releases(true);
  MutexLock growth(pool_.growth_mu_);
  const std::uint64_t released = pool_.free_complete_fallbacks() + pool_.retry_stuck();
  log_.note(LadderRung::trim, released);
  if (released + drained + ended == 0 && epochs_completed() == completed_before && !fits_by_now()) {
    return std::nullopt;
  }
  return search_with_driver();
}

std::uint64_t Pool::Impl::Ladder::epochs_completed() const {
  MutexLock lock(pool_.mu_);
  return pool_.streams_.epochs_completed();
}

bool Pool::Impl::Ladder::fits_by_now() const {
  MutexLock lock(pool_.mu_);
  if (stream_->is_released()) return false;
  const Fit fit = find_fit();
  const bool is_last_resort = pool_.options_.runtime.recycling == Recycling::off;
  return fit == Fit::now || (is_last_resort && fit == Fit::by_growth);
}

bool Pool::Impl::Ladder::wait_for_enough() {
  if (wait_.is_over) return false;
  {
    MutexLock lock(pool_.mu_);
    wait_.could_grow = !stream_->is_released() && pool_.can_grow(shape_, stream_->index());
  }
  learn_whether_it_may_fit();
  while (const std::uint64_t left_ns = time_left_ns()) {
    log_.note_try(LadderRung::wait);
    if (look_after_pause(wait_.pause_ns(left_ns))) return true;
  }
  // What was freed meanwhile may be in the caches of who freed it.
  wait_.is_over = true;
  return log_.was_tried(LadderRung::wait) && pool_.drain_patiently() > 0;
}

std::uint64_t Pool::Impl::Ladder::time_left_ns() const {
  MutexLock lock(pool_.mu_);
  const std::uint64_t most_ns = pool_.options_.runtime.out_of_memory.wait_ns;
  if (wait_.waited_ns >= most_ns || stream_->is_released() || !may_fit_) return 0;
  return most_ns - wait_.waited_ns;
}

bool Pool::Impl::Ladder::look_after_pause(std::uint64_t pause_ns) {
  const std::uint64_t start = pool_.driver_.now_ns();
  const std::uint64_t paused = pause(pool_.driver_, pause_ns);
  const std::uint64_t completed = pool_.complete_work(Patience::brief).value_or(0);
  const std::uint64_t waited = std::max(paused, pool_.driver_.now_ns() - start);
  wait_.waited_ns += waited;
  log_.waited_ns += waited;
  {
    MutexLock lock(pool_.mu_);
    pool_.counted_.out_of_memory_wait_ns += waited;
    const Books now = books();
    // Whether it fits takes a walk over holes or runs: not at every look.
    if (stream_->is_released() || now == seen_) return false;
    const std::uint64_t gained = seen_.pending - std::min(seen_.pending, now.pending);
    seen_ = now;
    if (completed > 0) log_.note_gain(LadderRung::wait, gained);
    const Fit fit = find_fit();
    const bool can_serve = fit == Fit::now || (fit == Fit::by_growth && !wait_.could_grow);
    // Fallbacks, and what the driver has refused for reasons that the pool does not see.
    const bool may_serve = completed > 0 && (fit == Fit::by_growth || is_contiguous());
    if (can_serve || may_serve) {
      log_.note_gain(LadderRung::wait, 0);
      return true;
    }
  }
  learn_whether_it_may_fit();
  return false;
}

void Pool::Impl::Ladder::learn_whether_it_may_fit() {
  // Others may go on freeing for ever.
  constexpr int kLooks = 4;
  for (int i = 0; i < kLooks; ++i) {
    {
      MutexLock lock(pool_.mu_);
      // What has become complete in between is found by the next look, as a change.
      if (i == 0) seen_ = books();
      const Fit fit = i == 0 ? Fit::no : find_fit();
      const bool fits = fit == Fit::now || (fit == Fit::by_growth && !wait_.could_grow);
      may_fit_ = fits || fits_once_awaited();
    }
    if (may_fit_ || i + 1 == kLooks) return;
    pool_.complete_work(Patience::full);
  }
}

bool Pool::Impl::Ladder::fits_once_awaited() const {
  const internal::RunTable& runs = pool_.tiers_.runs();
  if (!pool_.streams_.has_awaited()) return false;
  const std::uint64_t limit = pool_.limit_in_force();
  const std::uint64_t held = pool_.held_bytes() - pool_.fallbacks_.pending_bytes();
  const std::uint64_t headroom = limit - std::min(limit, held);
  if (is_contiguous()) {
    return headroom + runs.pages_once_complete() * kPageBytes >= request_.bytes;
  }
  // An upper bound: of the asking stream, of several, and of others what an event tells of.
  const std::uint64_t chunks = pool_.tiers_.chunk_pending_bytes();
  std::uint64_t bytes =
      pool_.free_bytes() + headroom + chunks + runs.pending_bytes_of(internal::kNobody);
  for (StreamIndex i = 0; i < pool_.streams_.index_count(); ++i) {
    const bool counts = i == stream_->index() || pool_.streams_.is_awaited(i);
    if (counts) bytes += runs.pending_bytes_of(i);
  }
  if (bytes < shape_.block_bytes) return false;
  // Chunks of others become whole, or the asking stream's, in ways that are not worth a forecast.
  if (shape_.tier != Tier::run && chunks >= shape_.block_bytes) return true;
  return pool_.fits_once_complete(shape_.units_alone(), stream_->index());
}

FailureReport Pool::Impl::Ladder::report(Error error) {
  // It says how things are now, and what would have worked with all that can be done.
  const LastResort last_resort(pool_);
  MutexLock growth(pool_.growth_mu_);
  pool_.refresh_device_memory();
  MutexLock lock(pool_.mu_);
  const bool has_addresses = is_contiguous() || pool_.arena_->can_extend() ||
                             pool_.plan_for(shape_, internal::kAnybody, false);
  if (error != Error::out_of_memory) {
    const auto cause = log_.is_unfit ? FailureCause::guard : FailureCause::driver;
    return pool_.report_of(request_, {cause, error}, stream_, log_);
  }
  FailureReport report = pool_.report_of(request_, {FailureCause::memory, error}, stream_, log_);
  if (!is_contiguous()) {
    report.reason = has_addresses ? pool_.reason_of_refusal(shape_) : MissReason::fragmented;
  }
  report.is_address_space_used_up = !has_addresses;
  return report;
}

bool Pool::Impl::Ladder::ask_handler(const FailureReport& report) {
  const auto& handler = pool_.options_.out_of_memory_handler;
  if (!handler || report.error != Error::out_of_memory) return false;
  if (is_in_handler || log_.retries == kMaxOutOfMemoryRetries) return false;
  const auto occupied = [this] {
    MutexLock lock(pool_.mu_);
    return pool_.held_bytes() - pool_.free_bytes() - pool_.pending_bytes();
  };
  const std::uint64_t before = occupied();
  is_in_handler = true;
  // An exception ends the program here, and not in whoever allocates.
  const bool asks_for_retry = [&]() noexcept { return handler(report); }();
  is_in_handler = false;
  log_.note_try(LadderRung::callback);
  if (!asks_for_retry) return false;
  ++log_.retries;
  log_.note_gain(LadderRung::callback, before - std::min(before, occupied()));
  return true;
}

}  // namespace gpupool
