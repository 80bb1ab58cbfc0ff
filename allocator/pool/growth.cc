// Serving a request with the driver: growing the arena, or one allocation outside it.
#include <algorithm>

#include "base/check.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::kPageBytes;
using internal::kUnitBytes;
using internal::kUnitsPerPage;
using internal::MutexLock;
using internal::PageSpan;

namespace {

/// Segments are taken at least this large, since what lies in different ones never joins; the
/// exact need is tried where so much is not to be had.
constexpr std::uint64_t kSegmentStepPages = 16;

}  // namespace

Result<void*> Pool::Impl::allocate_slowly(const AllocationRequest& request, const Shape& shape,
                                          internal::StreamState* stream,
                                          internal::ThreadRecord* record) {
  const std::uint64_t wait_start = driver_.now_ns();
  const auto count_wait = [&] {
    MutexLock lock(mu_);
    counted_.driver_wait_ns += driver_.now_ns() - wait_start;
  };
  const auto epochs_completed = [&] {
    MutexLock lock(mu_);
    return streams_.epochs_completed();
  };
  // What other threads gave back while this one was with the driver.
  const auto fits_by_now = [&] {
    MutexLock lock(mu_);
    return !stream->is_released() && find_fit(request.bytes, stream->index()) == Fit::now;
  };
  std::uint64_t completed_before = 0;
  Result<void*> result = Error::out_of_memory;
  {
    MutexLock growth(growth_mu_);
    completed_before = epochs_completed();
    result = allocate_with_driver(request, shape, stream, record);
  }
  if (result.ok()) {
    count_wait();
    return result;
  }
  // What was freed is out of reach, and fallbacks are held, until their work is known complete; and
  // nobody may have looked, or only a thread that this one did not wait for. To wait for it now
  // must not hold up who can be served by growth. Nor were caches waited for whose owners the
  // scheduler had stopped inside.
  const bool has_drained = drain_patiently() > 0;
  complete_work(Patience::full);
  MutexLock growth(growth_mu_);
  if (free_complete_fallbacks() > 0 || has_drained || epochs_completed() != completed_before ||
      fits_by_now()) {
    result = allocate_with_driver(request, shape, stream, record);
  }
  count_wait();
  if (result.ok()) return result;
  if (stream->is_released()) {
    MutexLock lock(mu_);
    return refuse_stream(request, stream);
  }
  // What follows is for the report, which is to say how things are now.
  retry_stuck();
  refresh_device_memory();
  MutexLock lock(mu_);
  const bool is_normal = request.allocation_class == AllocationClass::normal;
  return fail(request, is_normal ? reason_of_miss(shape, false) : MissReason::budget,
              result.error());
}

Result<void*> Pool::Impl::allocate_with_driver(const AllocationRequest& request, const Shape& shape,
                                               internal::StreamState* stream,
                                               internal::ThreadRecord* record) {
  if (stream->is_released()) return Error::invalid_argument;
  if (request.allocation_class == AllocationClass::contiguous) {
    return allocate_fallback(request, stream, record, FallbackReason::contiguous);
  }
  const GrowthOutcome outcome = allocate_by_growth(request, shape, stream, record);
  if (outcome.pointer != nullptr) return outcome.pointer;
  if (shape.tier != Tier::run) {
    // What is too short for a chunk may still do for a small block by itself.
    MutexLock lock(mu_);
    const BlockRef block = take_as_run(shape, stream);
    if (block.exists()) {
      count_miss(request, outcome.reason);
      return hand_out(block, request, stream->index(), record);
    }
  }
  if (outcome.is_line_used_up) {
    return allocate_fallback(request, stream, record, FallbackReason::address_space);
  }
  if (outcome.error != Error::out_of_memory) {
    return allocate_fallback(request, stream, record, FallbackReason::arena_failed);
  }
  return outcome.error;
}

Pool::Impl::GrowthOutcome Pool::Impl::allocate_by_growth(const AllocationRequest& request,
                                                         const Shape& shape,
                                                         internal::StreamState* stream,
                                                         internal::ThreadRecord* record) {
  GrowthOutcome outcome;
  // Takes the block if it is there, for a request that has waited, and so is no hit any more.
  const auto take = [&]() GPUPOOL_REQUIRES(mu_) {
    const BlockRef block = take_shared(shape, stream, internal::Reach::everywhere);
    if (!block.exists()) return false;
    count_miss(request, outcome.reason);
    outcome.pointer = hand_out(block, request, stream->index(), record);
    return true;
  };
  // The second round does without the free run that the first counted on and that a thread
  // without the growth lock may have taken meanwhile; what it grows by is enough alone.
  for (const bool may_extend : {true, false}) {
    PageSpan pages;
    {
      MutexLock lock(mu_);
      if (may_extend) outcome.reason = reason_of_miss(shape, true);
      // Whoever held the growth lock before may have grown for us.
      if (take()) return outcome;
      const auto plan =
          plan_growth(shape.units_needed(), shape.align_units, stream->index(), may_extend);
      outcome.is_line_used_up = !plan.has_value();
      if (!plan.has_value() || held_bytes() + plan->count * kPageBytes > limit_bytes_) {
        return outcome;
      }
      pages = with_growth_step(*plan);
    }
    auto backed = back_pages(pages);
    const std::uint64_t exact = internal::divide_up(shape.units_needed(), kUnitsPerPage);
    if (!backed.ok() && pages.count > exact) {
      pages.count = exact;
      backed = back_pages(pages);
    }
    if (!backed.ok()) {
      outcome.error = backed.error();
      return outcome;
    }
    MutexLock lock(mu_);
    add_pages(pages, backed.value());
    const bool is_taken = take();
    note_held();
    if (is_taken) return outcome;
  }
  return outcome;
}

Result<void*> Pool::Impl::allocate_fallback(const AllocationRequest& request,
                                            internal::StreamState* stream,
                                            internal::ThreadRecord* record, FallbackReason reason) {
  // Room to begin at a boundary where the driver promises less than is asked for.
  const std::uint64_t slack = request.alignment > internal::kGranuleBytes ? request.alignment : 0;
  const std::uint64_t bytes = internal::round_up(request.bytes, internal::kGranuleBytes) + slack;
  if (!make_room(bytes)) return Error::out_of_memory;
  const auto allocation = driver_.allocate(bytes);
  if (!allocation.ok()) return allocation.error();
  MutexLock lock(mu_);
  const DeviceAddress address =
      internal::round_up(allocation.value(), std::max<std::uint64_t>(request.alignment, 1));
  internal::Fallback& fallback = fallbacks_.add(address, allocation.value(), bytes);
  const std::uint32_t tag = code_of(request.tag == kCurrentTag ? current_tag() : request.tag);
  internal::ThreadCounters& counters = counters_of(record);
  if (counters.count_run(request.bytes, 0)) note_step_locked(record);
  if (tag != internal::BlockWord::kUntaggedCode) counters.count_tagged(tag, request.bytes);
  fallback.block.set_requested(request.bytes);
  fallback.block.tick.set(tick_.get());
  fallback.block.store(
      internal::BlockWord::live(tag, internal::BlockWord::kNoBin, stream->index()));
  counted_.device_free_bytes -= std::min(counted_.device_free_bytes, bytes);
  count_miss(request, MissReason::cold);
  ++counted_.fallbacks;
  ++counted_.fallbacks_by_reason[static_cast<std::size_t>(reason)];
  note_held();
  emit({.kind = SlowPathEventKind::fallback, .bytes = bytes, .fallback_reason = reason});
  return reinterpret_cast<void*>(address);
}

bool Pool::Impl::make_room(std::uint64_t bytes) {
  std::vector<internal::RunId> leaving;
  {
    MutexLock lock(mu_);
    if (held_bytes() + bytes <= limit_bytes_) return true;
    if (bytes > limit_bytes_) return false;
    // The arena's empty pages are of no use to a block that cannot be in it.
    drain_all();
    // Whoever waits for another thread in full does it without the growth lock.
    pause_to_complete_work(Patience::brief);
    leaving = detach_empty(limit_bytes_ - bytes);
  }
  const std::uint64_t released = give_back(leaving);
  MutexLock lock(mu_);
  if (released > 0) count_trim(released, TrimReason::out_of_memory);
  return held_bytes() + bytes <= limit_bytes_;
}

std::optional<PageSpan> Pool::Impl::plan_growth(std::uint32_t units, std::uint32_t align_units,
                                                StreamIndex stream, bool may_extend) const {
  if (!arena_->is_contiguous() || !may_extend) {
    return arena_->find_unbacked(internal::divide_up(units, kUnitsPerPage));
  }
  const internal::RunTable& runs = tiers_.runs();
  // Wherever unbacked pages touch free units, only the difference is needed: the fewest pages, the
  // lowest address of equals.
  std::optional<PageSpan> best;
  const auto consider = [&](PageSpan pages) {
    if (!best || pages.count < best->count) best = pages;
  };
  for (const PageSpan& hole : arena_->holes()) {
    const std::uint64_t before =
        runs.usable_units_before(hole.first * kUnitsPerPage, align_units, stream);
    const std::uint64_t inside = hole.count * kUnitsPerPage;
    if (before + inside >= units) {
      consider({hole.first, internal::divide_up(units - std::min<std::uint64_t>(before, units - 1),
                                                kUnitsPerPage)});
      continue;
    }
    const std::uint64_t after = runs.usable_units_after(hole.end() * kUnitsPerPage, stream);
    if (before + inside + after >= units) consider(hole);
  }
  const std::uint64_t end = arena_->high_water();
  const std::uint64_t before = runs.usable_units_before(end * kUnitsPerPage, align_units, stream);
  const std::uint64_t pages =
      internal::divide_up(units - std::min<std::uint64_t>(before, units - 1), kUnitsPerPage);
  if (end + pages <= arena_->page_capacity()) consider({end, pages});
  return best;
}

bool Pool::Impl::can_grow(const Shape& shape, StreamIndex stream) const {
  const auto plan = plan_growth(shape.units_needed(), shape.align_units, stream, true);
  return plan.has_value() && held_bytes() + plan->count * kPageBytes <= limit_in_force();
}

PageSpan Pool::Impl::with_growth_step(PageSpan pages) const {
  if (arena_->is_contiguous() || pages.count >= kSegmentStepPages) return pages;
  if (held_bytes() + kSegmentStepPages * kPageBytes > limit_bytes_) return pages;
  return arena_->find_unbacked(kSegmentStepPages).value_or(pages);
}

Result<std::vector<internal::Mapping>> Pool::Impl::back_pages(PageSpan pages) {
  std::uint64_t budget = 0;
  {
    MutexLock lock(mu_);
    budget = limit_bytes_ - std::min(limit_bytes_, held_bytes());
  }
  std::vector<internal::Mapping> stuck;
  auto mappings = arena_->back(pages, budget, stuck);
  MutexLock lock(mu_);
  arena_->keep_stuck(stuck);
  if (!stuck.empty()) note_held();
  return mappings;
}

void Pool::Impl::add_pages(PageSpan pages, const std::vector<internal::Mapping>& mappings) {
  arena_->commit(mappings);
  tiers_.runs().set_end(arena_->high_water() * kUnitsPerPage);
  tiers_.runs().add(pages.first * kUnitsPerPage,
                    static_cast<std::uint32_t>(pages.count * kUnitsPerPage));
  const std::uint64_t bytes = pages.count * kPageBytes;
  counted_.device_free_bytes -= std::min(counted_.device_free_bytes, bytes);
  emit({.kind = SlowPathEventKind::growth, .bytes = bytes});
}

std::uint64_t Pool::Impl::largest_growth_units(std::uint64_t pages) const {
  if (pages == 0) return 0;
  if (!arena_->is_contiguous()) {
    return arena_->find_unbacked(pages).has_value() ? pages * kUnitsPerPage : 0;
  }
  // What plan_growth could make of `pages` pages, for a stream that has freed nothing.
  const internal::RunTable& runs = tiers_.runs();
  std::uint64_t largest = 0;
  for (const PageSpan& hole : arena_->holes()) {
    std::uint64_t units =
        runs.usable_units_before(hole.first * kUnitsPerPage, 1, internal::kAnybody) +
        std::min(hole.count, pages) * kUnitsPerPage;
    if (pages >= hole.count) {
      units += runs.usable_units_after(hole.end() * kUnitsPerPage, internal::kAnybody);
    }
    largest = std::max(largest, units);
  }
  const std::uint64_t end = arena_->high_water();
  const std::uint64_t room = std::min(pages, arena_->page_capacity() - end);
  return std::max(largest, runs.usable_units_before(end * kUnitsPerPage, 1, internal::kAnybody) +
                               room * kUnitsPerPage);
}

MissReason Pool::Impl::reason_of_miss(const Shape& shape, bool served) const {
  const std::uint64_t need = shape.units_needed() * kUnitBytes;
  const std::uint64_t limit = limit_in_force();
  const std::uint64_t headroom = limit - std::min(limit, held_bytes());
  if (!served && free_bytes() + pending_bytes() + headroom < need) return MissReason::budget;
  if (tiers_.runs().largest_free_units() * kUnitBytes >= need) return MissReason::pending;
  if (free_bytes() >= need) return MissReason::fragmented;
  if (served) return MissReason::cold;
  // Room enough in sum, but part of it is free in pieces and part of it not backed.
  return MissReason::fragmented;
}

void Pool::Impl::count_miss(const AllocationRequest& request, MissReason reason) {
  ++counted_.misses;
  ++counted_.misses_by_reason[static_cast<std::size_t>(reason)];
  emit({.kind = SlowPathEventKind::miss, .bytes = request.bytes, .miss_reason = reason});
}

void Pool::Impl::note_held() {
  const std::uint64_t held = held_bytes();
  peak_window_.note_held(held);
  if (held <= counted_.peak_held_bytes) return;
  counted_.peak_held_bytes = held;
  counted_.largest_free_block_at_peak_held_bytes = tiers_.runs().largest_ready_units() * kUnitBytes;
}

void Pool::Impl::refresh_device_memory() {
  const auto memory = driver_.backend().memory_info();
  if (!memory.ok()) return;  // the last reading stands, and its time says how old it is
  MutexLock lock(mu_);
  counted_.device_free_bytes = memory.value().free_bytes;
  counted_.device_total_bytes = memory.value().total_bytes;
  counted_.device_read_time_ns = clock_.now_ns();
}

}  // namespace gpupool
