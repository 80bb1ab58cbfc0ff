// Serving a request with the driver: growing the arena, or one allocation outside it.
#include <algorithm>

#include "base/check.h"
#include "pool/own_allocation.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::GrowthOutcome;
using internal::GrowthRound;
using internal::kPageBytes;
using internal::kUnitBytes;
using internal::kUnitsPerPage;
using internal::MutexLock;
using internal::PageSupply;

namespace {

/// Each rung, what the device is found to have, and what other threads take meanwhile.
constexpr int kMaxRounds = 12;
/// Before the driver is asked for so many, which takes half a millisecond, the device is read where
/// that was not done of late.
constexpr std::uint64_t kDoubtedPages = 16;

}  // namespace

Result<void*> Pool::Impl::allocate_with_driver(const AllocationRequest& request, const Shape& shape,
                                               internal::StreamState* stream,
                                               internal::ThreadRecord* record, LadderLog& log) {
  if (stream->is_released()) return Error::invalid_argument;
  wait_for_maintenance();
  if (request.allocation_class == AllocationClass::contiguous) {
    return allocate_fallback(request, stream, record, FallbackReason::contiguous, log);
  }
  const GrowthOutcome outcome = allocate_by_growth(request, shape, stream, record, log);
  log.is_unfit = outcome.is_unfit;
  if (outcome.pointer != nullptr) return outcome.pointer;
  if (outcome.is_unfit) return outcome.error;
  if (shape.tier != Tier::run) {
    // What is too short for a chunk may still do for a small block by itself.
    MutexLock lock(mu_);
    const BlockRef block = take_as_run(shape, stream);
    if (block.exists()) {
      const auto served = hand_out(block, request, *stream, record);
      if (served.ok()) count_miss(request, outcome.reason, stream, log);
      log.is_unfit = !served.ok();
      return served;
    }
  }
  if (outcome.is_line_used_up) {
    return allocate_fallback(request, stream, record, FallbackReason::address_space, log);
  }
  if (outcome.error != Error::out_of_memory) {
    const auto result =
        allocate_fallback(request, stream, record, FallbackReason::arena_failed, log);
    // That there is no room for one, too, is not why the request fails.
    if (result.ok()) return result;
  }
  return outcome.error;
}

void Pool::Impl::wait_for_maintenance() {
  std::uint64_t until = 0;
  {
    MutexLock lock(mu_);
    until = growth_busy_until_ns_;
  }
  driver_.backend().wait_until(until);
  commit_ahead(true);
}

GrowthOutcome Pool::Impl::allocate_by_growth(const AllocationRequest& request, const Shape& shape,
                                             StreamState* stream, ThreadRecord* record,
                                             LadderLog& log) {
  GrowthOutcome outcome;
  // Takes the block if it is there, for a request that has waited, and so is no hit any more.
  const auto take = [&]() GPUPOOL_REQUIRES(mu_) {
    const BlockRef block = take_shared(shape, stream, internal::Reach::everywhere);
    if (!block.exists()) return false;
    outcome.note(hand_out(block, request, *stream, record));
    if (!outcome.is_unfit) count_miss(request, outcome.reason, stream, log);
    return true;
  };
  {
    MutexLock lock(mu_);
    forecast_.note(pool_time(), shape.units_needed());
    // What only waits for somebody to look is empty as well.
    if (options_.runtime.recycling != Recycling::off &&
        (streams_.has_unfinished() || streams_.keeps_apart())) {
      pause_to_complete_work(Patience::brief, &log);
      tiers_.runs().part_idle();
    }
  }
  GrowthRound round(log);
  do {
    PageSupply supply;
    {
      MutexLock lock(mu_);
      if (round.number == 0) outcome.reason = reason_of_miss(shape);
      // Whoever held the growth lock before may have grown for us.
      if (take()) return outcome;
      if (recycler_->moves_pages(options_.runtime)) log.note_try(LadderRung::recycle);
      log.note_try(LadderRung::grow);
      const auto plan = plan_for(shape, stream->index(), round.may_extend);
      outcome.is_line_used_up = !plan.has_value();
      if (plan.has_value()) supply = find_pages(*plan, shape, round, stream->index());
    }
    if (outcome.is_line_used_up) {
      if (!open_addresses()) return outcome;
      continue;
    }
    if (supply.missing_pages > 0) {
      if (climb(shape, stream->index(), supply, round)) continue;
      if (!may_try_again(supply, round)) return outcome;
      continue;
    }
    if (!suits_device(supply, round)) continue;
    if (const auto backed = back_pages(supply); !backed.ok()) {
      outcome.error = backed.error();
      // What the driver does not give may be there, empty.
      if (outcome.error != Error::out_of_memory || !learn_from_refusal(supply, round)) {
        return outcome;
      }
      continue;
    }
    MutexLock lock(mu_);
    leaving_bytes_ -= supply.moved_pages * kPageBytes;
    add_pages(supply);
    if (supply.moved_pages > 0) log.note(LadderRung::recycle, supply.moved_pages * kPageBytes);
    log.note(LadderRung::grow, supply.new_pages * kPageBytes);
    const bool is_taken = take();
    note_held();
    if (is_taken) return outcome;
    // Another thread, without the growth lock, has taken the free run that the plan counted on.
    // What is grown by next is enough alone.
    round.may_extend = false;
  } while (++round.number < kMaxRounds);
  return outcome;
}

Result<void*> Pool::Impl::allocate_fallback(const AllocationRequest& request,
                                            internal::StreamState* stream,
                                            internal::ThreadRecord* record, FallbackReason reason,
                                            LadderLog& log) {
  const auto kind =
      reason == FallbackReason::contiguous ? options_.contiguous : ContiguousBacking::cudamalloc;
  const std::uint64_t bytes =
      internal::own_bytes(request.bytes + guards_.canary_bytes(), request.alignment, kind);
  if (!make_room(bytes, log)) return Error::out_of_memory;
  log.note_try(LadderRung::grow);
  internal::Fallback own;
  const auto taken = internal::take_own(driver_, bytes, request.alignment, kind, own);
  if (!taken.ok()) return taken.error();
  if (const auto done = guard_own(own, request.bytes, *stream); !done.ok()) {
    log.is_unfit = true;
    return done.error();
  }
  log.note_gain(LadderRung::grow, bytes);
  MutexLock lock(mu_);
  const DeviceAddress address = own.address;
  internal::Fallback& fallback = fallbacks_.add(own);
  const std::uint32_t tag = code_of(request.tag == kCurrentTag ? current_tag() : request.tag);
  internal::ThreadCounters& counters = counters_of(record);
  if (counters.count_run(request.bytes, 0)) note_step_locked(record);
  if (tag != internal::BlockWord::kUntaggedCode) counters.count_tagged(tag, request.bytes);
  fallback.block.set_requested(request.bytes);
  fallback.block.tick.set(tick_.get());
  auto* const pointer = reinterpret_cast<void*>(address);
  auto word = internal::BlockWord::live(tag, internal::BlockWord::kNoBin, stream->shown_index());
  if (stream->is_pseudo()) {
    word =
        make_private(word, pointer, stream->index(), internal::PrivatePools::Kind::fallback, bytes);
  }
  fallback.block.store(word);
  if (recorder_ != nullptr) {
    recorder_->note_allocation(pointer, request.bytes, trace_stream(stream->shown_index()));
  }
  counted_.device_free_bytes -= std::min(counted_.device_free_bytes, bytes);
  count_miss(request, MissReason::cold, stream, log);
  ++counted_.fallbacks;
  ++counted_.fallbacks_by_reason[static_cast<std::size_t>(reason)];
  note_held();
  emit({.kind = SlowPathEventKind::fallback, .bytes = bytes, .fallback_reason = reason});
  return pointer;
}

bool Pool::Impl::suits_device(const PageSupply& supply, GrowthRound& round) {
  const std::uint64_t bytes = supply.new_pages * kPageBytes;
  {
    MutexLock lock(mu_);
    const bool is_old = pool_time() - counted_.device_read_time_ns >= internal::kDeviceReadNs;
    const bool is_doubted =
        bytes > counted_.device_free_bytes || (is_old && supply.new_pages >= kDoubtedPages);
    if (round.has_read_device || !is_doubted) return true;
  }
  round.has_read_device = true;
  const bool is_read = refresh_device_memory();
  MutexLock lock(mu_);
  if (!is_read || bytes <= counted_.device_free_bytes) return true;
  round.keep_to(arena_->backed_pages() + counted_.device_free_bytes / kPageBytes);
  call_off(supply);
  return false;
}

bool Pool::Impl::learn_from_refusal(const PageSupply& supply, GrowthRound& round) {
  // Who asks next is to know it before.
  refresh_device_memory();
  if (!arena_->is_contiguous() && !round.is_exact) {
    round.is_exact = true;
    return true;
  }
  std::uint64_t given = 0;
  for (const internal::Mapping& target : supply.targets) {
    const bool is_given = target.index == 0 && target.handle != PhysicalHandle();
    if (is_given) given += target.pages.count;
  }
  MutexLock lock(mu_);
  const std::uint64_t most = arena_->backed_pages() + given;
  if (most >= round.most_pages) return false;
  round.keep_to(most);
  round.was_refused = true;
  return true;
}

bool Pool::Impl::may_try_again(const PageSupply& missing, GrowthRound& round) {
  if (!round.was_refused || round.has_tried_again) return false;
  round.has_tried_again = true;
  if (!refresh_device_memory()) return false;
  MutexLock lock(mu_);
  if (missing.new_pages * kPageBytes > counted_.device_free_bytes) return false;
  round.forget_bound();
  return true;
}

MissReason Pool::Impl::reason_of_miss(const Shape& shape) const {
  if (tiers_.runs().largest_free_units() >= shape.units_needed()) return MissReason::pending;
  const bool is_enough = free_bytes() >= shape.units_needed() * kUnitBytes;
  return is_enough ? MissReason::fragmented : MissReason::cold;
}

MissReason Pool::Impl::reason_of_refusal(const Shape& shape) const {
  const std::uint64_t need = shape.units_needed() * kUnitBytes;
  const std::uint64_t limit = limit_in_force();
  const std::uint64_t headroom = limit - std::min(limit, held_bytes());
  const std::uint64_t waiting = pending_bytes() - std::min(pending_bytes(), private_bytes().free);
  if (free_bytes() + waiting + headroom < need) return MissReason::budget;
  // Room enough, as far as the pool can tell: it is the driver that gives less.
  if (can_grow(shape, internal::kAnybody)) return MissReason::budget;
  return fits_once_complete(shape.units_needed(), internal::kAnybody) ? MissReason::pending
                                                                      : MissReason::fragmented;
}

void Pool::Impl::note_held() {
  const std::uint64_t held = held_bytes();
  peak_window_.note_held(held);
  if (held <= counted_.peak_held_bytes) return;
  counted_.peak_held_bytes = held;
  counted_.largest_free_block_at_peak_held_bytes =
      guards_.request_in(tiers_.runs().largest_ready_units() * kUnitBytes);
}

bool Pool::Impl::refresh_device_memory() {
  const auto memory = driver_.backend().memory_info();
  if (!memory.ok()) return false;  // the last reading stands, and its time says how old it is
  MutexLock lock(mu_);
  counted_.device_free_bytes = memory.value().free_bytes;
  counted_.device_total_bytes = memory.value().total_bytes;
  counted_.device_read_time_ns = pool_time();
  return true;
}

}  // namespace gpupool
