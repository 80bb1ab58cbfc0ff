// Taking a block back, and telling what an address is when it is none of ours.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "pool/pool_impl.h"

namespace gpupool {

using internal::BlockWord;
using internal::MutexLock;

namespace {

/// A block of this size that other streams have used is waited for from its free on. An event that
/// is recorded only when memory runs short comes after all work that these were given meanwhile: on
/// a device that runs behind, up to a step of training later. An event is 0.9 us; what is smaller
/// is not worth that.
constexpr std::uint64_t kEventAtFreeBytes = std::uint64_t{1} << 20;

}  // namespace

bool Pool::Impl::deallocate_cold(void* pointer, std::size_t bytes, internal::StreamState* stream,
                                 bool is_by_handle) {
  if (pointer == nullptr) return true;
  // While the process exits there is nothing left to keep.
  if (is_closed()) [[unlikely]]
    return process_state_since(process_epoch_) == ProcessState::exiting;
  internal::ThreadRecord* const record = own_record();
  if (record != nullptr && has_at_hand(*record, stream) && put_thoroughly(pointer, bytes)) {
    return true;
  }
  std::optional<MisuseReport> misuse;
  const internal::Placement placement = place_free(stream, is_by_handle);
  if (!placement.is_same_stream) stream = nullptr;
  internal::FewStreams due;
  {
    MutexLock lock(mu_);
    misuse = take_back(pointer, bytes, stream, record, placement);
    if (!users_of_freed_.empty()) [[unlikely]] {
      due = users_of_freed_;
      users_of_freed_.clear();
    }
    if (!misuse.has_value() && stream->raw() == per_thread_stream() &&
        streams_.is_own_close_due(stream->index())) {
      due.add(stream->index());
    }
  }
  for (const StreamIndex index : due) close_epoch_if_free(index);
  if (!misuse.has_value()) return true;
  report_misuse(*misuse);
  return misuse->kind == Misuse::wrong_size || misuse->kind == Misuse::canary;
}

bool Pool::Impl::deallocate_raw(void* pointer, std::size_t bytes, RawStream raw) {
  if (pointer == nullptr) return true;
  if (is_closed()) return process_state_since(process_epoch_) == ProcessState::exiting;
  raw = one_handle(raw);
  internal::StreamState* stream = find_or_adopt(raw, nullptr);
  // The driver does not know the stream any more: then it is the one that the block was got on.
  if (stream == nullptr) stream = find_own_stream(pointer, raw);
  return deallocate_cold(pointer, bytes, stream, true);
}

internal::BlockRecord& Pool::Impl::record_of(const Target& target) {
  return target.fallback != nullptr ? target.fallback->block : tiers_.record(target.block);
}

std::optional<MisuseReport> Pool::Impl::take_back(void* pointer, std::size_t bytes,
                                                  const internal::StreamState* stream,
                                                  internal::ThreadRecord* record,
                                                  const internal::Placement& placement) {
  if (!streams_.is_known(stream)) {
    return count_misuse({.kind = Misuse::unknown_stream, .pointer = pointer});
  }
  const Target target = find_target(pointer);
  if (!target.exists() || !target.is_start) return count_misuse(explain(pointer));
  internal::BlockRecord& block_record = record_of(target);
  const BlockWord word = block_record.load();
  const StreamIndex index = stream->index();
  // One exchange decides: of two frees that race, one finds the block not as it was.
  if (!word.is_live() || !block_record.take(word, BlockWord::cached(word.bin(), index))) {
    return count_misuse(explain(pointer));
  }
  if (recorder_ != nullptr) [[unlikely]]
    recorder_->note_free(pointer, trace_stream(index));
  std::optional<MisuseReport> overrun;
  TicketSet tickets_before;
  if (guards_.is_on()) [[unlikely]] {
    tickets_before = tickets_of(index);
    overrun = guard_free(target, word, stream->raw());
  }
  // The stream may have ended meanwhile, and its index be another's.
  const bool is_same_stream = !guards_.is_on() || streams_.is_known(stream);

  const std::uint64_t block_bytes =
      target.fallback != nullptr ? target.fallback->bytes : tiers_.bytes_of(target.block);
  const std::uint64_t requested = block_record.requested(block_bytes);
  block_record.tick.set(tick_.get());
  internal::ThreadCounters& counters = counters_of(record);
  bool has_stepped = false;
  using Kind = internal::PrivatePools::Kind;
  const auto tickets = [&](Kind kind) GPUPOOL_REQUIRES(mu_) {
    const TicketSet own = is_same_stream ? tickets_of(index) : tickets_before;
    if (!word.has_extra_uses()) return own;
    return tickets_at_free(pointer, is_same_stream ? stream : nullptr, own, placement, kind,
                           block_bytes);
  };
  if (target.fallback != nullptr) {
    has_stepped = counters.count_run_free(requested, 0);
    block_record.clear();
    fallbacks_.retire(*target.fallback, tickets(Kind::fallback));
  } else {
    const Kind kind = target.block.is_run() ? Kind::run : Kind::in_chunk;
    has_stepped = target.block.is_run() ? counters.count_run_free(requested, block_bytes)
                                        : counters.count_small_free(word.bin(), requested);
    if (word.has_extra_uses() || !is_same_stream) {
      tiers_.put(target.block, tickets(kind));
    } else {
      put_cached(open_cache(record, stream), target.block, index);
    }
  }
  if (!word.is_untagged()) counters.count_tagged_free(word.tag(), requested);
  if (has_stepped) note_step_locked(record);
  if (stream->raw() == per_thread_stream() && is_same_stream) streams_.note_own_free(index);
  if (overrun.has_value()) return overrun;
  if (bytes == kNoSize || bytes == requested) return std::nullopt;
  return count_misuse({.kind = Misuse::wrong_size,
                       .pointer = pointer,
                       .block = pointer,
                       .block_bytes = requested,
                       .given = bytes});
}

void Pool::Impl::put_shared(BlockRef block, StreamIndex stream) {
  tiers_.put(block, tickets_of(stream));
}

Pool::Impl::TicketSet Pool::Impl::tickets_at_free(
    const void* pointer, const internal::StreamState* stream, const TicketSet& own,
    const internal::Placement& placement, internal::PrivatePools::Kind kind, std::uint64_t bytes) {
  const auto uses = extra_uses_.find(pointer);
  const auto home = std::find_if(uses->second.begin(), uses->second.end(),
                                 [](const ExtraUse& use) { return use.is_home; });
  const bool is_private = home != uses->second.end();
  TicketSet tickets;
  const bool is_placed = stream != nullptr && placement.is_private();
  const internal::StreamState* const as =
      is_placed ? private_pools_.find(placement, stream->id()) : stream;
  // On the pseudo-stream that it was served to, it is that one's alone.
  if (!is_private || as == nullptr || as->index() != home->ticket.stream) tickets = own;
  if (is_private) private_pools_.note_freed(home->ticket.stream, kind, bytes);
  for (const ExtraUse& use : uses->second) {
    tickets.add(use.at_free ? streams_.ticket(use.ticket.stream) : use.ticket, streams_);
    if (use.at_free && bytes >= kEventAtFreeBytes) users_of_freed_.add(use.ticket.stream);
  }
  extra_uses_.erase(uses);
  return tickets;
}

Pool::Impl::Target Pool::Impl::find_target(const void* pointer, bool or_inside) {
  const auto address = reinterpret_cast<DeviceAddress>(pointer);
  Target target;
  if (const auto unit = arena_->find_unit(address)) {
    const std::uint64_t offset = address % internal::kUnitBytes;
    const auto found = or_inside ? tiers_.find_slowly(*unit, offset) : tiers_.find(*unit, offset);
    target.block = found.block;
    target.is_start = found.is_start;
  } else if (internal::Fallback* fallback = fallbacks_.find(address)) {
    target.fallback = fallback;
    target.is_start = fallback->address == address;
  }
  return target;
}

MisuseReport Pool::Impl::explain(const void* pointer) {
  const auto address = reinterpret_cast<DeviceAddress>(pointer);
  MisuseReport report;
  report.pointer = pointer;
  if (const internal::Fallback* fallback = fallbacks_.find(address)) {
    const bool is_live = fallback->block.load().is_live();
    report.kind = is_live ? Misuse::interior_pointer : Misuse::double_free;
    report.block = reinterpret_cast<const void*>(fallback->address);
    report.block_bytes = fallback->block.requested(fallback->bytes);
    return report;
  }
  const auto unit = arena_->find_unit(address);
  if (!unit.has_value()) {
    report.kind = Misuse::foreign_pointer;
    return report;
  }
  const auto found = tiers_.find_slowly(*unit, address % internal::kUnitBytes);
  if (!found.block.exists() || !tiers_.record(found.block).load().is_live()) {
    // Memory of the pool that nobody holds: it was given back before.
    report.kind = Misuse::double_free;
    return report;
  }
  report.kind = Misuse::interior_pointer;
  report.block = address_of(found.block);
  report.block_bytes = tiers_.record(found.block).requested(tiers_.bytes_of(found.block));
  return report;
}

MisuseReport Pool::Impl::count_misuse(MisuseReport report) {
  std::uint64_t& count = counted_.misuses[static_cast<std::size_t>(report.kind)];
  report.first_of_kind = count == 0;
  ++count;
  emit({.kind = SlowPathEventKind::misuse, .bytes = report.block_bytes, .misuse = report.kind});
  return report;
}

void Pool::Impl::report_misuse(const MisuseReport& report) {
  if (options_.misuse_handler) options_.misuse_handler(report);
  // A wrong hint is ignored by contract, and a leak at the pool's end harms nobody any more;
  // everything else was refused and may end the program.
  const bool was_refused = report.kind != Misuse::wrong_size && report.kind != Misuse::leak;
  if (options_.on_misuse == OnMisuse::abort && was_refused) std::abort();
}

internal::StreamState* Pool::Impl::find_or_adopt(RawStream raw, CaptureState* capture) {
  raw = one_handle(raw);
  internal::ThreadRecord* const record = own_record();
  // Nobody ends the legacy stream, and nobody captures it: its handle names it for good.
  internal::StreamState* const legacy =
      raw == nullptr && record != nullptr ? record->find_named(raw) : nullptr;
  if (legacy != nullptr && capture == nullptr) return legacy;
  internal::StreamState* left_alone = nullptr;
  // Where another thread may begin a capture, it is who the handle named last, too.
  if (private_pools_.is_in_use()) {
    MutexLock lock(mu_);
    left_alone = streams_.find_left_alone(raw);
  }
  const auto state_now = driver_.backend().capture_state(raw);
  const CaptureState captured = state_now.ok() ? state_now.value() : CaptureState::none;
  if (capture != nullptr) *capture = captured;
  if (left_alone != nullptr) return left_alone;
  if (legacy != nullptr) return legacy;
  // In a capture it cannot be asked who it is: it is who the handle named last.
  if (captured != CaptureState::none) {
    MutexLock lock(mu_);
    const std::uint64_t own = record != nullptr ? record->own_stream : 0;
    const std::uint64_t known =
        raw == per_thread_stream() && own != 0 ? own : streams_.id_named(raw);
    return find_or_adopt_locked(raw, known, record);
  }
  const auto id = driver_.backend().stream_id(raw);
  if (!id.ok()) return nullptr;
  if (record != nullptr) {
    if (internal::StreamState* const named = record->find_named(raw, id.value())) return named;
  }
  MutexLock lock(mu_);
  internal::StreamState* const state = find_or_adopt_locked(raw, id.value(), record);
  if (state != nullptr && record != nullptr) {
    if (internal::ThreadCache* const cache = record->find(state, state->index())) {
      record->name(raw, id.value(), *cache, state);
    }
  }
  return state;
}

internal::StreamState* Pool::Impl::find_or_adopt_locked(RawStream raw, std::uint64_t id,
                                                        internal::ThreadRecord* record) {
  // The legacy stream may first have been named while it could not be asked who it is.
  if (internal::StreamState* legacy = raw == nullptr ? streams_.find_named(raw) : nullptr) {
    return legacy;
  }
  if (internal::StreamState* known = streams_.find(id)) return known;
  // Nothing is recorded for it: the handle is another stream's.
  if (internal::StreamState* former = streams_.disown(raw, id)) {
    hold_blocks_of(*former);
    let_go(former, record);
  }
  internal::StreamState* adopted = streams_.adopt(raw, id);
  if (adopted == nullptr) return nullptr;
  if (raw == per_thread_stream() && record != nullptr) record->own_stream = id;
  know(adopted->index());
  return adopted;
}

}  // namespace gpupool
