#!/usr/bin/env python3
"""Shows that the tests can fail: each rule that keeps memory from being shared too early is taken
out of a copy of the allocator's source, and the tests must notice.

Usage: mutation_check.py --source DIR --compiler CXX [--launcher CCACHE] [--only NAME]
           --program NAME O... [--program ...] --libraries A... [--options=-l...]

A program is named with its objects; a mutation says which one is to notice it. Only the changed file is compiled, or the sources that have the rule from a changed header; what
comes of it is linked in front of the library that was built, so that its objects take the place of
the originals.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile


@dataclasses.dataclass(frozen=True)
class Mutation:
    name: str
    path: str
    before: str
    after: str
    sources: tuple = ()  # of a header: those that are compiled with it
    tests: str = "All/ListTest.*"
    program: str = "property"
    more: tuple = ()  # further pairs of before and after, in the same file


# Where it is asked whose a free piece is.
HOLDER_SOURCES = ("runs/run_table.cc", "runs/run_report.cc", "pool/shared_tiers.cc")
REFUSALS = "All/RecyclingTest.Refuses*"

MUTATIONS = (
    Mutation("no ticket check", "stream/ticket_set.h",
             "    return has_more() ? kNobody : unpack(head_).stream;\n",
             "    return kAnybody;\n", HOLDER_SOURCES),
    Mutation("several tickets are nobody's no more", "stream/ticket_set.h",
             "    return has_more() ? kNobody : unpack(head_).stream;\n",
             "    return unpack(head_).stream;\n", HOLDER_SOURCES),
    Mutation("a fifth ticket is lost", "stream/ticket_set.cc",
             "  fence.sequence = streams.make_fence();\n", ""),
    Mutation("a fence is always complete", "stream/stream_table.cc",
             "    if (oldest != 0 && oldest <= fence.sequence) return false;\n", ""),
    Mutation("a fence forgets the stream that made it one", "stream/ticket_set.cc",
             "  fence.groups |= streams.group_of(ticket.stream);\n", ""),
    Mutation("a fence forgets the streams before", "stream/ticket_set.cc",
             "  for (const Ticket& covered : tickets) "
             "fence.groups |= streams.group_of(covered.stream);\n", ""),
    Mutation("joining loses whose the neighbour's fence is", "stream/ticket_set.cc",
             "  all.fence.groups |= others.fence.groups;\n", ""),
    Mutation("joining loses the tickets of the one before", "runs/run_table.cc",
             "  if (before != 0) run.tickets.add(runs_[before].tickets, streams_);\n", ""),
    Mutation("joining loses the run's own tickets", "runs/run_table.cc",
             "  runs_[kept].tickets = run.tickets;\n", ""),
    Mutation("joining loses the tickets of the one after", "runs/run_table.cc",
             "  if (after != 0) run.tickets.add(runs_[after].tickets, streams_);\n", ""),
    Mutation("a rest that is cut off has no tickets", "runs/run_table.cc",
             "  runs_[rest].tickets = run.tickets;\n", "  runs_[rest].tickets.clear();\n"),
    Mutation("what is left of a run that is cut has no tickets", "runs/run_table.cc",
             "  runs_[taken].tickets = run.tickets;\n",
             "  runs_[taken].tickets = run.tickets;\n  run.tickets.clear();\n"),
    Mutation("what the first stream freed stays everybody's", "runs/run_table.cc",
             "  if (by_stream_.size() > 1) part();\n", ""),
    Mutation("what is in use counts as idle", "runs/run_pages.cc",
             "  return runs_[id].kind == RunKind::free && tickets_of(id, pages).empty();\n", "  return true;\n"),
    Mutation("slots of other streams are free at once", "pool/shared_tiers.cc",
             "    if (tickets[i].stream != owner && !streams_.is_complete(tickets[i])) return true;\n",
             ""),
    Mutation("a chunk goes back without its tickets", "pool/shared_tiers.cc",
             "  runs_.put(chunk.run, chunk.tickets);\n", "  runs_.put(chunk.run, TicketSet());\n"),
    Mutation("uses by other streams are forgotten", "pool/deallocate.cc",
             "  for (const ExtraUse& use : uses->second) {\n",
             "  for (const ExtraUse& use : std::vector<ExtraUse>()) {\n"),
    Mutation("a cache for all streams", "cache/thread_cache.h",
             "      return cache->state == state && !cache->claim.has_ended();\n",
             "      return !cache->claim.has_ended();\n",
             ("pool/threads.cc", "pool/allocate.cc", "pool/deallocate.cc")),
    Mutation("nobody asks whether work is complete", "stream/epoch_events.cc",
             "      if (!done.ok() || !done.value()) break;\n", ""),
    Mutation("an ended stream's index is used again at once", "stream/stream_table.cc",
             "  if (slot.id == 0 || !slot.closed.empty() || slot.open_first_use != 0) return;\n",
             "  if (slot.id == 0) return;\n"),
    Mutation("an event by a handle that is another stream's", "stream/epoch_events.cc",
             "  return id.ok() && id.value() == end.stream_id;\n", "  return id.ok();\n"),
    Mutation("an event covers what was freed while it was recorded", "stream/stream_table.cc",
             "  if (slot.open_first_use != 0) end_epoch(slot);\n"
             "  return EpochEnd{stream, slot.open - 1,",
             "  return EpochEnd{stream, slot.open,", (), "All/ListTest.*/VmmOthers", "property",
             (("  slots_[end.stream]->recorded = end.epoch;\n",
               "  slots_[end.stream]->recorded = end.epoch;\n"
               "  slots_[end.stream]->open = end.epoch + 1;\n"
               "  slots_[end.stream]->open_first_use = 0;\n"),)),
    Mutation("an epoch without an event counts as complete", "stream/stream_table.cc",
             "  if (!end.is_recorded) return;\n",
             "  if (!end.is_recorded) {\n    slots_[end.stream]->recorded = end.epoch;\n"
             "    return complete({end.stream, end.epoch});\n  }\n"),
    Mutation("an epoch without an event gets none any more", "stream/stream_table.cc",
             "  return slot.open_first_use != 0 || slot.recorded + 1 < slot.open;\n",
             "  return slot.open_first_use != 0;\n"),
    Mutation("a fence overlooks closed epochs", "stream/stream_table.cc",
             "slot.closed.empty() ? slot.open_first_use : slot.closed.front().first_use;",
             "slot.open_first_use;"),
    Mutation("a stream ends without an event", "stream/stream_table.cc",
             "  return last;\n", "  return std::nullopt;\n"),
    Mutation("a destroyed stream's cache is its successor's", "pool/deallocate.cc",
             "let_go(former, record);", "streams_.release(former);"),
    # Caches.
    Mutation("a claim is not waited for", "cache/thread_caches.cc",
             "      if (cache->claim.is_outside()) return true;\n      pause_briefly();\n",
             "      return true;\n", (), "*ThreadCachesTest.*", "cache"),
    Mutation("the owner does not look at the gate", "cache/claim.h",
             "    if (gate == 0) [[likely]]\n", "    if (gate != kExchange) [[likely]]\n",
             ("pool/hit.cc", "pool/miss.cc"), "PoolCacheTest.AStreamThatEnds*", "pool"),
    # The thread is stopped where that matters, which the system does seldom.
    Mutation("a block is taken without compare-exchange", "base/block_record.h",
             "    return word.compare_exchange_strong(expected, cached.bits(), "
             "std::memory_order_acq_rel,\n"
             "                                        std::memory_order_acquire);\n",
             "    if (word.load() != expected) return false;\n    ::sched_yield();\n"
             "    word.store(cached.bits());\n    return true;\n",
             ("pool/hit.cc", "pool/deallocate.cc"), "CacheRacesTest.OfTwoFreesThatRaceExactly*",
             "stress", (("#include <atomic>\n", "#include <sched.h>\n\n#include <atomic>\n"),)),
    Mutation("the address is not compared again", "pool/hit.cc",
             "  if (tiers_.directory().entry(unit) != entry) [[unlikely]] {\n",
             "  if (false) {\n", (), "CacheRacesTest.AFreeThatComesTooLate*", "stress",
             (("  internal::BlockRecord& record = records[code];\n  const BlockWord word",
               "  internal::BlockRecord& record = records[code];\n  ::usleep(50);\n"
               "  const BlockWord word"),
              ('#include "pool/hand_out.h"\n', '#include <unistd.h>\n#include "pool/hand_out.h"\n'))),
    Mutation("an ended cache still takes blocks", "pool/draining.cc",
             "    cache.claim.end();\n", "", (), "PoolCacheTest.A*", "pool"),
    Mutation("chains are handed over to another stream", "pool/threads.cc",
             "    cache->depot = depots_[stream->index()].get();\n",
             "    cache->depot = depots_[0].get();\n", (),
             "PoolCacheTest.WhatIsHandedOver*", "pool"),
    Mutation("a batch of runs is lost on its way", "pool/hand_over.cc",
             "  return depot.put_runs(batch);\n", "  return true;\n", (), "PoolHandOverTest.*", "pool"),
    Mutation("a chain of small blocks is lost on its way", "pool/hand_over.cc",
             "    cache.depot->put(bin, chain, tiers_.directory().records());\n", "", (),
             "PoolHandOverTest.*", "pool"),
    Mutation("depots may have what they like", "pool/hand_over.cc",
             "    if (before + more > options_.cache_large_bytes / 2) {\n", "    if (false) {\n", (),
             "PoolHandOverTest.*", "pool"),
    Mutation("small blocks leave caches without tickets", "pool/draining.cc",
             "    tiers_.put(block, tickets);\n", "    tiers_.put(block, TicketSet());\n", (),
             "PoolCacheTest.WhatWasClaimed*", "pool"),
    Mutation("runs leave caches without tickets", "pool/draining.cc",
             "    tiers_.put_run(id, tickets);\n", "    tiers_.put_run(id, TicketSet());\n"),
    Mutation("a stream ends, and a block that is on its way has no ticket", "pool/draining.cc",
             "    if (cache.has_left_over.get()) cache.last_ticket = streams_.ticket(stream);\n", "",
             (), "CacheRacesTest.AStreamEnds*", "stress"),
    Mutation("a request goes on for a stream that has ended", "pool/allocate.cc",
             "  if (stream->is_released()) return {};\n  const StreamIndex", "  const StreamIndex",
             (), "PoolCacheTest.AStreamThatEndsWhile*", "pool"),
    Mutation("a request fails though an owner is only stopped inside", "pool/ladder.cc",
             "const std::uint64_t drained = pool_.drain_patiently();\n",
             "const std::uint64_t drained = [&] {\n"
             "    MutexLock lock(pool_.mu_);\n"
             "    return pool_.drain_all();\n"
             "  }();\n", (),
             "PoolCacheTest.AnOwner*", "pool"),
    Mutation("whoever drains waits until nobody is inside", "pool/draining.cc",
             "    moved += flush_passed_over(left);\n",
             "    moved += drain_all();\n    std::swap(left, passed_over_);\n", (),
             "PoolCacheTest.WhoWaits*", "pool"),
    Mutation("who is waited for may be inside for ever", "pool/draining.cc",
             "caches_.bar(*cache);\n", "caches_.unbar(*cache);\n", (), "PoolCacheTest.AnOwnerThatIsWaited*", "pool"),
    # Recordings.
    Mutation("a recorded request is served by the usual miss", "cache/claim.h",
             "(kBarred | kEnded)) != 0;\n", "kEnded) != 0;\n", ("pool/miss.cc",),
             "PoolRecordTest.*", "pool"),
    Mutation("a recording begins while a thread is inside its cache", "pool/recording.cc",
             "      if (caches_.are_all_outside()) {\n", "      {\n", (),
             "PoolRecordTest.Begins*", "pool"),
    Mutation("caches that come while it is recorded have no bar", "cache/thread_caches.cc",
             "start(has_fence_, bars_ > 0);", "start(has_fence_);", (), "PoolRecordTest.*", "pool"),
    # Guards, fork, peers.
    Mutation("a block is zeroed under another stream's work", "pool/guards.cc",
             "is_free_of_capture && !has_other_uses;", "is_free_of_capture;", (),
             "PoolGuardTest.ScrubOfABlock*", "pool"),
    Mutation("a free is recorded into a graph", "pool/guards.cc",
             "const bool may_fill = is_free_of_capture &&", "const bool may_fill =", (),
             "PoolGuardTest.ScrubIsNot*", "pool"),
    Mutation("what could not be zeroed is handed out as it is", "pool/guards.cc",
             "  if (options_.scrub && postponed() > 0) result", "  if (false) result", (),
             "PoolGuardTest.*Scrub*", "pool"),
    Mutation("a cache is at hand while there are guards", "pool/pool.cc",
             "(options_.verify_streams || guards_.is_on())", "(options_.verify_streams)", (),
             "PoolGuardTest.*", "pool"),
    Mutation("a canary takes no room", "pool/allocate.cc",
             "shape_of(request.bytes + guards_.canary_bytes(),", "shape_of(request.bytes,", (),
             "PoolGuardTest.*", "pool"),
    Mutation("what was told of a canary outlives the block", "pool/guards.cc",
             "    forget(block);\n", "", (), "PoolGuardTest.WhatIsWritten*", "pool"),
    Mutation("a moved page is the device's alone", "backend/driver.cc",
             "return peers_.empty() ? backend_", "return true ? backend_", (), "PoolPeersTest.*",
             "pool"),
    Mutation("a child serves from what was at hand", "base/thread_exits.cc",
             "  hot_slot = HotSlot{.tag = hot_slot.tag};\n", "", (), "PoolForkTest.Each*", "pool"),
    Mutation("a child ends its parent's pool", "pool/pool.cc",
             "  abandon(impl_.release());\n", "", (), "PoolForkTest.*", "pool"),
    # Recycling.
    Mutation("a page moves though work on it is unfinished", "pool/recycler.cc",
             "    if (stream == kAnybody && !runs_.are_idle(id, lies)) return true;\n", "", (), REFUSALS),
    Mutation("what moves has no tickets any more", "pool/recycler.cc",
             "    if (target.index != 0) tickets = (moved++)->tickets;\n", "", (),
             "PoolRecyclingTest.WhatIsLeft*", "pool"),
    Mutation("an old address is unmapped under running work", "arena/arena.cc",
             "    if (!stale.tickets.empty()) return false;\n", "", (), REFUSALS),
    Mutation("an old address loses its tickets", "pool/recycler.cc",
             "    arena_.relocate(target, moved->tickets);\n",
             "    arena_.relocate(target, TicketSet());\n", (), REFUSALS),
    Mutation("eager holds what the limit allows", "pool/recycler.cc",
             "  if (options.recycling != Recycling::eager || holds_more_) return limit_pages;\n",
             "  return limit_pages;\n", (), REFUSALS),
    Mutation("eager moves pages whatever that costs", "pool/recycler.cc",
             "  if (options.recycling != Recycling::eager || holds_more_) return limit_pages;\n",
             "  if (options.recycling != Recycling::eager) return limit_pages;\n", (),
             "PoolRecyclingTest.MoreIsHeld*", "pool"),
    Mutation("a block does not wait for a stream that ended without a word", "pool/deallocate.cc",
             "    hold_blocks_of(*former);\n", "", (), "PoolAbandonedTest.ABlockWaits*", "pool"),
    Mutation("who used a large block is asked when memory runs short", "pool/deallocate.cc",
             "    if (use.at_free && bytes >= kEventAtFreeBytes) "
             "users_of_freed_.add(use.ticket.stream);\n", "", (),
             "PoolStreamTest.WorkGivenAfterAFree*", "pool"),
    Mutation("nobody knows who freed a page", "runs/run_table.cc",
             "  if (tracks_pages_) page_tickets_.add(run.start, run.end(), run.tickets, streams_);\n",
             "", (), REFUSALS),
    Mutation("what is mapped elsewhere as well is given back", "pool/empty_pages.h",
             "is_empty = mapping.aliases == 0 && runs", "is_empty = runs", ("pool/trimming.cc",),
             "PoolTrimmingTest.WhatTheDriver*", "pool"),
    Mutation("a segment goes of which a part was in use", "pool/idle_pages.h",
             "    if (leaving + pages > idle()) return false;\n", "", ("pool/trimming.cc",),
             "PoolTrimmingTest.ASegment*", "pool"),
    Mutation("a thread comes with a time of before", "pool/pool_state.h",
             "latest_ns_ = std::max(latest_ns_, clock_.now_ns())", "latest_ns_ = clock_.now_ns()",
             ("pool/upkeep.cc", "pool/trimming.cc"), "PoolTrimTest.TheRate*", "pool"),
    Mutation("an alias that could not be unmapped is forgotten", "arena/arena.cc",
             "      fill(mapping.pages);\n"
             "      add_stale(mapping.pages, mapping.address, mapping.index, TicketSet());\n", "", (),
             "All/PoolRecyclingFaultTest.AndEachSecondOne*", "pool"),
    Mutation("pages come out of the window that they are for", "pool/recycler.cc",
             "    if (!fits || overlap(lies, plan.window)) return true;\n",
             "    if (!fits) return true;\n", (), REFUSALS),
    Mutation("what is pending counts as occupied twice", "pool/growth_planner.cc",
             "  plan.fresh_pages += empty_pages(backed_start, around.end(), plan.window) + "
             "plan.pages;\n", "  plan.fresh_pages = plan.window.count;\n", (),
             "PoolRecyclingTest.OnesOwnUnfinished*", "pool"),
    Mutation("no plan spares what could move", "pool/recycling.cc",
             "  if (!recycler_->moves_pages(options_.runtime)) return supply;\n", "  return supply;\n",
             (), "PoolRoomTest.WhatCouldMove*", "pool"),
    Mutation("stale addresses stay in the way of a request", "pool/making_room.cc",
             "  unmap_stale();\n", "", (), "PoolRoomTest.AnAddress*", "pool"),
    Mutation("what the driver gave is not counted with what is empty", "pool/growth.cc",
             "    if (is_given) given += target.pages.count;\n", "", (),
             "PoolRoomTest.ADriverThatGivesLess*", "pool"),
    Mutation("the device is not read before it is asked for much", "pool/growth.cc",
             "    if (round.has_read_device || !is_doubted) return true;\n", "    return true;\n", (),
             "PoolRoomTest.WhatTheDevice*", "pool"),
    # Statistics.
    Mutation("a request does not wait", "pool/ladder.cc",
             "  while (!result.ok() && result.error() == Error::out_of_memory && "
             "wait_for_enough()) {\n",
             "  while (false) {\n", tests="PoolLadderTest.Waits*", program="ladder"),
    Mutation("who waits waits to the end", "pool/ladder.cc",
             "  if (can_serve || may_serve) {\n", "  if (false) {\n",
             tests="PoolLadderTest.Waits*", program="ladder"),
    Mutation("waits for the lesser part of what is needed", "pool/ladder.cc",
             "  if (bytes < shape_.block_bytes) return false;\n", "",
             tests="PoolLadderTest.DoesNotWait*", program="ladder"),
    Mutation("waits for pieces that stay apart", "pool/ladder.cc",
             "  return pool_.fits_once_complete(shape_.units_alone(), stream_->index());\n",
             "  return true;\n", tests="PoolLadderTest.DoesNotWait*", program="ladder"),
    Mutation("waits for what no event tells of", "pool/ladder.cc",
             "    if (counts) bytes += ", "    bytes += ", tests="PoolLadderTest.*", program="ladder",
             more=(("  if (!pool_.streams_.has_awaited()) return false;\n", ""),)),
    Mutation("a fallback that is done with is not given back for who waits", "pool/ladder.cc",
             "    log_.note(LadderRung::trim, pool_.free_complete_fallbacks());\n", "",
             tests="PoolLadderTest.AContiguous*", program="ladder"),
    Mutation("without recycling nothing goes back as a last resort", "pool/recycling.cc",
             "  return options_.runtime.recycling != Recycling::off || last_resorts_ > 0;\n",
             "  return options_.runtime.recycling != Recycling::off;\n",
             tests="PoolLadderTest.WithoutRecycling*", program="ladder"),
    Mutation("the handler is not asked", "pool/ladder.cc",
             "    if (ladder.ask_handler(report)) continue;\n", "",
             tests="PoolHandlerTest.*", program="ladder"),
    Mutation("a handler that allocates is called for that", "pool/ladder.cc",
             "  if (is_in_handler || log_.retries == kMaxOutOfMemoryRetries) return false;\n",
             "  if (log_.retries == kMaxOutOfMemoryRetries) return false;\n",
             tests="PoolHandlerTest.OneThatAllocates*", program="ladder"),
    Mutation("who has waited is no miss of pending", "pool/failing.cc",
             "  if (log.has_given(LadderRung::wait)) reason = MissReason::pending;\n", "",
             tests="PoolLadderTest.AContiguous*", program="ladder"),
    Mutation("a rung that gave nothing has served", "pool/ladder.h",
             "    gave_ = static_cast<std::uint8_t>(gave_ | bit(rung));\n",
             "    gave_ = 0xff;\n", ("pool/allocate.cc", "pool/growth.cc", "pool/ladder.cc"),
             tests="PoolLadderTest.*", program="ladder"),
    Mutation("two counters of a shard are of two moments", "cache/thread_counters.h",
             "      pair = {up.get_first(), down.get_first()};\n"
             "      if (up.get() == pair.up) break;\n",
             "      pair.up = up.get_first();\n"
             "      if (pair.up != 0) ::sched_yield();\n"
             "      pair.down = down.get_first();\n      break;\n",
             ("cache/thread_counters.cc", "cache/thread_caches.cc", "pool/peaks.cc"),
             "SnapshotsTest.NorIsLess*", "stress",
             (("#include <array>\n", "#include <sched.h>\n\n#include <array>\n"),)),
    Mutation("a lone shard counts twice for the peak", "cache/thread_caches.cc",
             "    sum.highest += counters.is_alone.get() ? std::max(live, counters.high.get()) : live;\n",
             "    sum.highest += counters.live() - live + std::max(live, counters.high.get());\n", (),
             "SnapshotsTest.ALone*", "stress"),
    # Private pools, and what one stream may have of another's.
    Mutation("events are recorded for what a graph uses", "stream/stream_table.cc",
             "  slots_[*index]->can_record = false;\n", "  slots_[*index]->can_record = true;\n",
             (), "PoolCaptureTest.*", "streams"),
    Mutation("a released private pool's graphs are not waited for", "pool/private_serving.cc",
             "  if (is_any_captured || !backend.synchronize_device().ok()) return 0;\n",
             "  if (is_any_captured) return 0;\n", (), "PoolCaptureTest.Released*", "streams"),
    Mutation("the device is waited for in a capture", "pool/private_serving.cc",
             "  if (is_any_captured || !backend.synchronize_device().ok()) return 0;\n",
             "  if (!backend.synchronize_device().ok()) return 0;\n", (), "PoolCaptureTest.TheDevice*",
             "streams"),
    Mutation("a private block freed elsewhere waits for nobody", "pool/deallocate.cc",
             "  if (!is_private || as == nullptr || as->index() != home->ticket.stream) tickets = own;\n",
             "  if (!is_private) tickets = own;\n", (), "PrivatePoolsTest.ABlockFreed*", "streams"),
    Mutation("what a graph uses by record_stream is not pinned", "pool/private_serving.cc",
             "  if (!placement.is_private() || !placement.is_capturing) return stream;\n",
             "  return stream;\n", (), "PoolCaptureTest.ABlockThatAGraph*", "streams"),
    Mutation("caches serve what is announced", "pool/private_pools.cc",
             "  if (were_any != routes_->are_any()) were_any ? caches_.unbar_all() : "
             "caches_.bar_all();\n", "  (void)were_any;\n", (), "PoolCaptureTest.AnAnnounced*",
             "streams"),
    Mutation("caches serve a capture", "pool/allocate.cc",
             "  if (internal::is_captured(capture) || waits) {\n",
             "  if (capture == CaptureState::implicit || waits) {\n",
             (), "PoolCaptureTest.ACaptureThat*", "streams"),
    Mutation("others ask and record where a capture may begin", "stream/stream_holds.cc",
             "    if (hold.thread == thread) return false;\n", "    return false;\n", (),
             "PoolHoldsTest.*", "streams"),
    Mutation("a pool is begun while an event is being recorded", "pool/private_serving.cc",
             "  MutexLock events(impl_->events_mu_);\n  MutexLock lock(impl_->mu_);\n  before = ",
             "  MutexLock lock(impl_->mu_);\n  before = ", (), "PoolBeginTest.NoEvent*", "streams"),
    Mutation("what waits for others as well counts as nobody's", "pool/report.cc",
             "  bytes.pinned += shared;\n", "", (), "PrivatePoolsTest.PinnedIs*", "streams"),
    Mutation("what is pinned joins what is not", "runs/run_table.h",
             "    return streams_.keeps_apart() || "
             "(streams_.has_pseudo() && tickets.is_pinned(streams_));\n",
             "    return streams_.keeps_apart() && tickets.is_pinned(streams_);\n", ("runs/run_table.cc",),
             "PrivatePoolsTest.ARequest*", "streams"),
    Mutation("what the driver would not fill was served", "pool/allocate.cc",
             "      return done.error();\n", "      static_cast<void>(done.error());\n", (),
             "PoolRefusalTest.AHit*", "pool"),
    Mutation("what waits for the device is a hit", "pool/allocate.cc",
             "        if (waits) {\n", "        if (waits && false) {\n", (),
             "PoolRefusalTest.WhatWaits*", "pool"),
    Mutation("what the guards need is had by requests", "pool/guards.h",
             "    return bytes - std::min(bytes, canary_bytes());\n", "    return bytes;\n",
             ("pool/failing.cc", "pool/report.cc"), "PoolGuardTest.TheLargest*", "pool"),
    Mutation("streams are told apart by nobody", "stream/stream_table.h",
             "    if (!keeps_apart_ || slot.state == nullptr) slot.shared = slot.complete;\n",
             "    slot.shared = slot.complete;\n", ("stream/stream_table.cc",), "NeverPolicyTest.*",
             "streams"),
    Mutation("a piece is given without a wait", "pool/cross_stream.cc",
             "  const auto covered = events_.wait(stream.raw(), *events, ticket.epoch);\n",
             "  const std::optional<std::uint64_t> covered = ticket.epoch;\n"
             "  (void)events;\n", (), "WaitPolicyTest.A*", "streams"),
    Mutation("who waits for an old event waits for what its stream came after later",
             "pool/cross_stream.cc", "  if (end.has_value()) {\n    streams_.order_after_all(",
             "  if (covered.has_value()) {\n    streams_.order_after_all(", (),
             "WaitPolicyTest.NotForWhatTheOther*", "streams"),
    Mutation("a dependency is on what is freed later, too", "stream/stream_table.cc",
             "    if (order.ticket.stream == ticket.stream && order.ticket.epoch >= ticket.epoch) "
             "return &order;\n",
             "    if (order.ticket.stream == ticket.stream) return &order;\n", (),
             "DependencyTest.WhatIsFreed*", "streams"),
    Mutation("a stream comes after what its index's former did", "stream/stream_table.cc",
             "  slots_[index]->after.clear();\n", "", (), "DependencyTest.AnotherStream*", "streams"),
    Mutation("a dependency in a capture orders the streams", "pool/upkeep.cc",
             "  if (place(source.state(), std::nullopt, {}).is_capturing) return false;\n", "", (),
             "DependencyTest.NoneIsNoted*", "streams"),
    Mutation("a threshold is told of at once", "pool/threshold_watch.cc",
             "  if (now_ns - *state.since_ns < reading.hold_ns) return;\n", "", (),
             "ThresholdWatchTest.*", "pool"),
    Mutation("a threshold has no hysteresis", "pool/threshold_watch.cc",
             "    if (!reading.is_over) return;\n", "    if (reading.is_reached) return;\n", (),
             "ThresholdWatchTest.*", "pool"),
)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", required=True, type=pathlib.Path)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--launcher", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--program", nargs="+", action="append", required=True)
    parser.add_argument("--libraries", nargs="+", required=True)
    parser.add_argument("--options", action="append", default=[])
    arguments = parser.parse_args()
    arguments.objects = {name: objects for name, *objects in arguments.program}
    return arguments


def build(program, mutation, arguments, folder):
    """The program with `mutation` in it; the mutation that is None changes nothing."""
    objects = list(arguments.objects[program])
    if mutation is not None:
        allocator = arguments.source / "allocator"
        text = (allocator / mutation.path).read_text(encoding="utf-8")
        for before, after in ((mutation.before, mutation.after), *mutation.more):
            if text.count(before) != 1:
                raise SystemExit(f"{mutation.name}: {mutation.path} does not have its text once")
            text = text.replace(before, after)
        # In a folder of the same name, so that a header is found there before the original.
        mutant = folder / mutation.path
        mutant.parent.mkdir()
        mutant.write_text(text, encoding="utf-8")
        launcher = [arguments.launcher] if arguments.launcher else []
        for source in [allocator / path for path in mutation.sources] or [mutant]:
            built = folder / f"{source.stem}.o"
            subprocess.run([*launcher, arguments.compiler, "-std=c++20", "-O1", "-w", "-fPIC",
                            "-I", folder, "-I", allocator, "-I", allocator / "include",
                            "-c", source, "-o", built], check=True)
            objects.insert(0, built)
    linked = folder / "tests"
    subprocess.run([arguments.compiler, *objects, *arguments.libraries, "-o", linked,
                    "-pthread", *arguments.options], check=True)
    return linked


def run(program, tests, mutation, arguments):
    """Whether the tests failed, and what they said."""
    with tempfile.TemporaryDirectory(prefix="gpupool-mutation-") as name:
        linked = build(program, mutation, arguments, pathlib.Path(name))
        environment = dict(os.environ, GPUPOOL_TEST_SHRINK="0", GPUPOOL_TEST_SEED="1")
        if mutation is None:
            environment["GPUPOOL_TEST_LISTS"] = "3"
        try:
            done = subprocess.run([linked, f"--gtest_filter={tests}", "--gtest_fail_fast"],
                                  env=environment, check=False, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace", timeout=100)
        except subprocess.TimeoutExpired:
            return True, "it never ends"
    if mutation is not None and "[==========] Running 0 tests" in done.stdout:
        raise SystemExit(f"{mutation.name}: {program} has no test {tests}")
    reasons = [line for line in done.stdout.splitlines()
               if line.startswith(("after operation", "at the end", "gpupool: ", "work of stream"))]
    return done.returncode != 0, reasons[0] if reasons else done.stdout[-400:]


def stale(source):
    """Mutations whose text is not in the source as they have it."""
    for mutation in MUTATIONS:
        text = (pathlib.Path(source) / "allocator" / mutation.path).read_text(encoding="utf-8")
        befores = [mutation.before, *(before for before, _ in mutation.more)]
        if any(text.count(before) != 1 for before in befores):
            yield mutation.name


def share(source):
    """A sixth of the mutations, another one from commit to commit; under GPUPOOL_SOAK, and where the
    source is of no commit, all. All take three minutes of two processors."""
    head = subprocess.run(["git", "-C", str(source), "rev-parse", "HEAD"], capture_output=True,
                          text=True, check=False)
    if os.environ.get("GPUPOOL_SOAK") or head.returncode != 0:
        return MUTATIONS
    return MUTATIONS[int(head.stdout[:8], 16) % 6::6]


def main():
    arguments = parse_arguments()
    if names := list(stale(arguments.source)):
        print("the source has not, or not once, the text of:", "; ".join(names))
        return 1
    among = MUTATIONS if arguments.only else share(arguments.source)
    chosen = [mutation for mutation in among if arguments.only in mutation.name]
    for program, tests in sorted({(mutation.program, mutation.tests) for mutation in chosen}):
        failed, said = run(program, tests, None, arguments)
        if failed:
            print(f"{program} {tests} fails without any mutation: {said}")
            return 1
    unnoticed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as workers:
        results = workers.map(
            lambda mutation: run(mutation.program, mutation.tests, mutation, arguments), chosen)
        for mutation, (is_noticed, said) in zip(chosen, results):
            print(f"{'noticed' if is_noticed else 'NOT NOTICED'}: {mutation.name}")
            if is_noticed:
                print(f"    {said}")
            unnoticed += not is_noticed
    print(f"{len(chosen)} mutations, {unnoticed} not noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
