#include "stream/stream_table.h"

#include <algorithm>

#include "base/check.h"
#include "base/thread_serial.h"

namespace gpupool::internal {
namespace {

/// Released states kept so that a late StreamRef is recognised instead of read after free.
constexpr std::size_t kReleasedKept = 4096;
/// Frees on a per-thread default stream for each event: often enough that little stays pending,
/// seldom enough that the event's 0.4 us do not show.
constexpr std::uint64_t kOwnEpochFrees = 256;

}  // namespace

StreamState* StreamTable::find(std::uint64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second.get();
}

StreamState* StreamTable::find_named(RawStream raw) const {
  const auto id = id_by_raw_.find(raw);
  return id != id_by_raw_.end() ? find(id->second) : nullptr;
}

StreamState* StreamTable::disown(RawStream raw, std::uint64_t id) {
  const auto entry = id_by_raw_.find(raw);
  if (entry == id_by_raw_.end() || entry->second == id) return nullptr;
  StreamState* former = find(entry->second);
  ++mismatches_;
  slots_[former->index_]->can_record = false;
  return former;
}

StreamState* StreamTable::adopt(RawStream raw, std::uint64_t id) {
  if (StreamState* known = find(id)) return known;
  const auto index = find_slot();
  if (!index.has_value()) return nullptr;
  // The per-thread handle has the same value for every thread's own stream. Of any other handle
  // the former owner is gone: see disown().
  if (raw != per_thread_stream()) {
    GPUPOOL_CHECK(id_by_raw_.emplace(raw, id).second);
  }
  auto state = make_state(*index, raw, id);
  slots_[*index]->can_record = true;
  slots_[*index]->was_refused = false;
  return by_id_.emplace(id, std::move(state)).first->second.get();
}

std::optional<StreamIndex> StreamTable::find_slot() {
  if (!free_indices_.empty()) {
    const StreamIndex index = free_indices_.back();
    free_indices_.pop_back();
    return index;
  }
  if (slots_.size() + (nameless_.has_value() ? 0 : 1) >= kMaxStreams) return std::nullopt;
  return add_slot();
}

StreamIndex StreamTable::nameless() {
  // Without an identity, so that its index is never used again, and without a state, so that
  // nothing is recorded for it.
  if (!nameless_.has_value()) nameless_ = add_slot();
  return *nameless_;
}

StreamIndex StreamTable::add_slot() {
  const auto index = static_cast<StreamIndex>(slots_.size());
  slots_.push_back(std::make_unique<Slot>());
  slots_.back()->events.stream = index;
  // So that release() never needs the heap for the way back.
  free_indices_.reserve(slots_.size());
  return index;
}

std::unique_ptr<StreamState> StreamTable::make_state(StreamIndex index, RawStream raw,
                                                     std::uint64_t id) {
  auto state = std::make_unique<StreamState>();
  state->owner_ = this;
  state->index_ = state->shown_index_ = index;
  state->id_ = id;
  state->raw_ = raw;
  state->thread_ = thread_serial();
  slots_[index]->id = id;
  slots_[index]->state = state.get();
  slots_[index]->after.clear();
  return state;
}

StreamState* StreamTable::adopt_pseudo(const StreamState& stream) {
  const auto index = find_slot();
  if (!index.has_value()) return nullptr;
  pseudo_.push_back(make_state(*index, stream.raw_, stream.id_));
  StreamState* const state = pseudo_.back().get();
  state->is_pseudo_ = true;
  state->shown_index_ = stream.index_;
  slots_[*index]->can_record = false;
  slots_[*index]->is_pseudo = true;
  return state;
}

void StreamTable::complete_pseudo(StreamState* state) {
  state->released_.store(true, std::memory_order_release);
  Slot& slot = *slots_[state->index_];
  slot.state = nullptr;
  slot.is_pseudo = false;
  // Its one epoch, which was never closed.
  if (slot.open_first_use != 0) {
    slot.complete = slot.recorded = slot.open++;
    slot.open_first_use = 0;
    ++epochs_completed_;
  }
  share(slot);
  const auto found = std::find_if(pseudo_.begin(), pseudo_.end(),
                                  [&](const auto& pseudo) { return pseudo.get() == state; });
  keep_released(std::move(*found));
  pseudo_.erase(found);
  retire_if_complete(state->index_);
}

std::vector<Ticket> StreamTable::close_unawaited() {
  std::vector<Ticket> ended;
  for (StreamIndex i = 0; i < slots_.size(); ++i) {
    Slot& slot = *slots_[i];
    const bool is_unfinished = !slot.closed.empty() || slot.open_first_use != 0;
    const bool may_be_recorded = slot.state != nullptr && (!slot.was_refused || !needs_event(i));
    const bool is_awaited = !slot.events.ring.empty() || may_be_recorded;
    if (slot.is_pseudo || !is_unfinished || is_awaited) continue;
    if (slot.open_first_use != 0) end_epoch(slot);
    ended.push_back({i, slot.open - 1});
  }
  return ended;
}

void StreamTable::complete_unawaited(Ticket ticket) {
  Slot& slot = *slots_[ticket.stream];
  if (ticket.epoch <= slot.complete || !slot.events.ring.empty()) return;
  slot.recorded = std::max(slot.recorded, ticket.epoch);
  complete(ticket);
}

std::optional<EpochEnd> StreamTable::release(StreamState* state) {
  // Whoever ends a stream has it for himself, and nobody can record for it later.
  const std::optional<EpochEnd> last = end_open(state->index_);
  holds_.forget(state->index_);
  state->released_.store(true, std::memory_order_release);
  Slot& slot = *slots_[state->index_];
  slot.state = nullptr;
  slot.can_record = false;
  share(slot);
  if (const auto raw = id_by_raw_.find(state->raw_);
      raw != id_by_raw_.end() && raw->second == state->id_) {
    id_by_raw_.erase(raw);
  }
  const auto found = by_id_.find(state->id_);
  keep_released(std::move(found->second));
  by_id_.erase(found);
  retire_if_complete(state->index_);
  return last;
}

void StreamTable::keep_released(std::unique_ptr<StreamState> state) {
  released_.push_back(std::move(state));
  if (released_.size() > kReleasedKept) released_.pop_front();
}

void StreamTable::order(StreamIndex later, Ticket earlier, bool is_by_pool) {
  if (later != earlier.stream) add_order(*slots_[later], {earlier, is_by_pool});
}

void StreamTable::order_after_all(StreamIndex later, Ticket earlier, bool is_by_pool) {
  if (later == earlier.stream) return;
  order(later, earlier, is_by_pool);
  Slot& slot = *slots_[later];
  // A copy: it may wait for `later` in turn.
  const std::vector<Order> before = slots_[earlier.stream]->after;
  for (const Order& order : before) {
    if (order.ticket.stream != later) add_order(slot, {order.ticket, is_by_pool});
  }
}

void StreamTable::add_order(Slot& slot, Order order) {
  std::erase_if(slot.after, [this](const Order& known) { return is_complete(known.ticket); });
  if (is_complete(order.ticket)) return;
  for (Order& known : slot.after) {
    if (known.ticket.stream != order.ticket.stream) continue;
    if (known.ticket.epoch < order.ticket.epoch) known = order;
    return;
  }
  if (slot.after.size() == kMaxOrders) slot.after.erase(slot.after.begin());
  slot.after.push_back(order);
}

const StreamTable::Order* StreamTable::find_order(StreamIndex stream,
                                                  Ticket ticket) const noexcept {
  for (const Order& order : slots_[stream]->after) {
    if (order.ticket.stream == ticket.stream && order.ticket.epoch >= ticket.epoch) return &order;
  }
  return nullptr;
}

void StreamTable::keep_apart(bool is_on) {
  keeps_apart_ = is_on;
  for (const auto& slot : slots_) share(*slot);
}

bool StreamTable::is_fence_released(const Fence& fence) const noexcept {
  for (StreamIndex i = 0; i < slots_.size(); ++i) {
    if (slots_[i]->state != nullptr && (fence.groups & group_of(i)) != 0) return false;
  }
  return true;
}

bool StreamTable::is_own_handle(const StreamState& state) const noexcept {
  return state.raw_ != per_thread_stream() || state.thread_ == thread_serial();
}

bool StreamTable::is_fence_complete(const Fence& fence) const noexcept {
  for (StreamIndex i = 0; i < slots_.size(); ++i) {
    if ((fence.groups & group_of(i)) == 0) continue;
    const Slot& slot = *slots_[i];
    const std::uint64_t oldest =
        slot.closed.empty() ? slot.open_first_use : slot.closed.front().first_use;
    if (oldest != 0 && oldest <= fence.sequence) return false;
  }
  return true;
}

bool StreamTable::needs_event(StreamIndex stream) const noexcept {
  const Slot& slot = *slots_[stream];
  return slot.open_first_use != 0 || slot.recorded + 1 < slot.open;
}

bool StreamTable::is_left_alone(const StreamState& state) const noexcept {
  // By the handle of a thread's own stream nobody captures another's.
  return state.raw_ != per_thread_stream() && holds_.is_held(state.index_, thread_serial());
}

StreamState* StreamTable::find_left_alone(RawStream raw) const noexcept {
  StreamState* const state = find_named(raw);
  return state != nullptr && is_left_alone(*state) ? state : nullptr;
}

void StreamTable::end_epoch(Slot& slot) {
  if (slot.closed.is_full()) {
    slot.closed.back().epoch = slot.open;
  } else {
    slot.closed.push_back({slot.open, slot.open_first_use});
  }
  ++slot.open;
  slot.open_first_use = 0;
}

std::optional<EpochEnd> StreamTable::end_open(StreamIndex stream) {
  Slot& slot = *slots_[stream];
  slot.own_frees = 0;
  if (!slot.can_record || slot.state == nullptr) return std::nullopt;
  if (slot.state->raw_ == per_thread_stream() && slot.state->thread_ != thread_serial()) {
    return std::nullopt;
  }
  if (!needs_event(stream)) return std::nullopt;
  if (slot.open_first_use != 0) end_epoch(slot);
  return EpochEnd{stream, slot.open - 1, slot.id, slot.state->raw_, &slot.events};
}

void StreamTable::begin_close_all(std::vector<EpochEnd>& ends) {
  const bool is_any_held = !holds_.empty();
  for (StreamIndex i = 0; i < slots_.size(); ++i) {
    if (const auto end = is_any_held ? begin_close(i) : end_open(i)) ends.push_back(*end);
  }
}

void StreamTable::end_close(const EpochEnd& end) {
  slots_[end.stream]->was_refused = !end.is_recorded;
  if (!end.is_recorded) return;
  slots_[end.stream]->recorded = end.epoch;
  ++epochs_closed_;
}

void StreamTable::complete(Ticket ticket) {
  Slot& slot = *slots_[ticket.stream];
  slot.complete = ticket.epoch;
  share(slot);
  ++epochs_completed_;
  while (!slot.closed.empty() && slot.closed.front().epoch <= ticket.epoch) slot.closed.pop_front();
  if (slot.state == nullptr) retire_if_complete(ticket.stream);
}

bool StreamTable::is_own_close_due(StreamIndex stream) const noexcept {
  return slots_[stream]->own_frees >= kOwnEpochFrees;
}

void StreamTable::retire_if_complete(StreamIndex stream) {
  Slot& slot = *slots_[stream];
  if (slot.id == 0 || !slot.closed.empty() || slot.open_first_use != 0) return;
  slot.id = 0;
  free_indices_.push_back(stream);
}

void StreamTable::open_all() {
  for (StreamIndex i = 0; i < slots_.size(); ++i) {
    if (slots_[i]->state != nullptr || nameless_ == i) ticket(i);
  }
}

bool StreamTable::has_unfinished() const noexcept {
  return std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) {
    return (!slot->closed.empty() || slot->open_first_use != 0) && !slot->is_pseudo;
  });
}

std::vector<RawStream> StreamTable::handles() const {
  std::vector<RawStream> handles;
  for (const auto& [id, state] : by_id_) handles.push_back(state->raw());
  std::sort(handles.begin(), handles.end());
  return handles;
}

bool StreamTable::has_awaited() const noexcept {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const auto& slot) { return slot->recorded > slot->complete; });
}

void StreamTable::check_invariants() const {
  for (const auto& slot : slots_) {
    GPUPOOL_CHECK(slot->complete <= slot->recorded && slot->recorded < slot->open);
    GPUPOOL_CHECK(keeps_apart_ ? slot->shared <= slot->complete : slot->shared == slot->complete);
    std::uint64_t before = slot->complete;
    for (std::size_t i = 0; i < slot->closed.size(); ++i) {
      GPUPOOL_CHECK(slot->closed[i].epoch > before);
      GPUPOOL_CHECK(slot->closed[i].first_use > 0 && slot->closed[i].first_use <= sequence_);
      before = slot->closed[i].epoch;
    }
    GPUPOOL_CHECK(slot->open == before + 1);
    before = slot->complete;
    for (std::size_t i = 0; i < slot->events.ring.size(); ++i) {
      GPUPOOL_CHECK(slot->events.ring[i].epoch > before);
      before = slot->events.ring[i].epoch;
    }
    GPUPOOL_CHECK(slot->recorded == before);
    GPUPOOL_CHECK(slot->state == nullptr || slot->state->owner_ == this);
  }
}

}  // namespace gpupool::internal
