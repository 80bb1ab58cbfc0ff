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

StreamTable::~StreamTable() {
  for (const auto& slot : slots_) {
    for (; slot->size > 0; --slot->size, slot->head = (slot->head + 1) % Slot::kMaxInFlight) {
      free_events_.push_back(slot->ring[slot->head].event);
    }
  }
  // The driver may be gone at process exit; an event that cannot be destroyed then is no loss.
  for (EventHandle event : free_events_) static_cast<void>(backend_.destroy_event(event));
}

StreamState* StreamTable::find(std::uint64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second.get();
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
  if (free_indices_.empty() && slots_.size() >= kMaxStreams) return nullptr;
  // The per-thread handle has the same value for every thread's own stream. Of any other handle
  // the former owner is gone: see disown().
  if (raw != per_thread_stream()) {
    GPUPOOL_CHECK(id_by_raw_.emplace(raw, id).second);
  }

  StreamIndex index;
  if (!free_indices_.empty()) {
    index = free_indices_.back();
    free_indices_.pop_back();
  } else {
    index = static_cast<StreamIndex>(slots_.size());
    slots_.push_back(std::make_unique<Slot>());
    // So that release() never needs the heap for the way back.
    free_indices_.reserve(slots_.size());
  }
  auto state = std::make_unique<StreamState>();
  state->owner_ = this;
  state->index_ = index;
  state->id_ = id;
  state->raw_ = raw;
  state->thread_ = thread_serial();
  Slot& slot = *slots_[index];
  slot.id = id;
  slot.state = state.get();
  slot.can_record = true;
  return by_id_.emplace(id, std::move(state)).first->second.get();
}

void StreamTable::release(StreamState* state) {
  close_epoch(state->index_);
  state->released_ = true;
  Slot& slot = *slots_[state->index_];
  slot.state = nullptr;
  slot.can_record = false;
  if (const auto raw = id_by_raw_.find(state->raw_);
      raw != id_by_raw_.end() && raw->second == state->id_) {
    id_by_raw_.erase(raw);
  }
  const auto found = by_id_.find(state->id_);
  released_.push_back(std::move(found->second));
  by_id_.erase(found);
  if (released_.size() > kReleasedKept) released_.pop_front();
  retire_if_complete(state->index_);
}

bool StreamTable::is_fence_complete(const Fence& fence) const noexcept {
  for (StreamIndex i = 0; i < slots_.size(); ++i) {
    if ((fence.groups & Fence::group_of(i)) == 0) continue;
    const Slot& slot = *slots_[i];
    const std::uint64_t oldest =
        slot.size > 0 ? slot.ring[slot.head].first_use : slot.open_first_use;
    if (oldest != 0 && oldest <= fence.sequence) return false;
  }
  return true;
}

bool StreamTable::may_record(const Slot& slot) const {
  if (!slot.can_record || slot.state == nullptr) return false;
  if (slot.state->raw_ == per_thread_stream() && slot.state->thread_ != thread_serial()) {
    return false;
  }
  // A handle whose stream was destroyed unannounced may be another stream's by now, whose events
  // say nothing of the former's work.
  const auto id = backend_.stream_id(slot.state->raw_);
  if (!id.ok() || id.value() != slot.id) return false;
  const auto capture = backend_.capture_state(slot.state->raw_);
  return capture.ok() && capture.value() == CaptureState::none;
}

Result<EventHandle> StreamTable::take_event() {
  if (free_events_.empty()) return backend_.create_event();
  const EventHandle event = free_events_.back();
  free_events_.pop_back();
  return event;
}

bool StreamTable::close_epoch(StreamIndex stream) {
  Slot& slot = *slots_[stream];
  if (slot.open_first_use == 0) return true;
  if (!may_record(slot)) return false;
  if (slot.size == Slot::kMaxInFlight) return extend_newest(slot);
  const auto event = take_event();
  if (!event.ok()) return false;
  if (!backend_.record_event(event.value(), slot.state->raw_).ok()) {
    free_events_.push_back(event.value());
    return false;
  }
  slot.ring[(slot.head + slot.size++) % Slot::kMaxInFlight] = {slot.open, slot.open_first_use,
                                                               event.value()};
  ++slot.open;
  slot.open_first_use = 0;
  ++epochs_closed_;
  return true;
}

bool StreamTable::extend_newest(Slot& slot) {
  InFlight& newest = slot.ring[(slot.head + slot.size - 1) % Slot::kMaxInFlight];
  if (!backend_.record_event(newest.event, slot.state->raw_).ok()) return false;
  newest.epoch = slot.open++;
  slot.open_first_use = 0;
  ++epochs_closed_;
  return true;
}

void StreamTable::note_own_free(StreamIndex stream) {
  if (++slots_[stream]->own_frees % kOwnEpochFrees == 0) close_epoch(stream);
}

void StreamTable::close_epochs() {
  for (StreamIndex i = 0; i < slots_.size(); ++i) close_epoch(i);
}

std::uint64_t StreamTable::poll() {
  std::uint64_t completed = 0;
  for (StreamIndex i = 0; i < slots_.size(); ++i) {
    Slot& slot = *slots_[i];
    while (slot.size > 0) {
      const InFlight& oldest = slot.ring[slot.head];
      const auto done = backend_.query_event(oldest.event);
      // An event that cannot be asked counts as unfinished: waiting longer is safe.
      if (!done.ok() || !done.value()) break;
      slot.complete = oldest.epoch;
      free_events_.push_back(oldest.event);
      slot.head = (slot.head + 1) % Slot::kMaxInFlight;
      --slot.size;
      ++completed;
    }
    if (slot.state == nullptr) retire_if_complete(i);
  }
  return completed;
}

void StreamTable::retire_if_complete(StreamIndex stream) {
  Slot& slot = *slots_[stream];
  if (slot.id == 0 || slot.size > 0 || slot.open_first_use != 0) return;
  slot.id = 0;
  free_indices_.push_back(stream);
}

void StreamTable::open_all() {
  for (StreamIndex i = 0; i < slots_.size(); ++i) {
    if (slots_[i]->state != nullptr) ticket(i);
  }
}

bool StreamTable::has_unfinished() const noexcept {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const auto& slot) { return slot->size > 0 || slot->open_first_use != 0; });
}

void StreamTable::synchronize() {
  close_epochs();
  for (const auto& slot : slots_) {
    for (std::size_t i = 0; i < slot->size; ++i) {
      const auto& in_flight = slot->ring[(slot->head + i) % Slot::kMaxInFlight];
      if (!backend_.synchronize_event(in_flight.event).ok()) return;
    }
  }
  poll();
}

void StreamTable::check_invariants() const {
  for (const auto& slot : slots_) {
    GPUPOOL_CHECK(slot->size <= Slot::kMaxInFlight);
    std::uint64_t before = slot->complete;
    for (std::size_t i = 0; i < slot->size; ++i) {
      const auto& in_flight = slot->ring[(slot->head + i) % Slot::kMaxInFlight];
      GPUPOOL_CHECK(in_flight.epoch > before);
      GPUPOOL_CHECK(in_flight.first_use > 0 && in_flight.first_use <= sequence_);
      before = in_flight.epoch;
    }
    GPUPOOL_CHECK(slot->open == before + 1);
    GPUPOOL_CHECK(slot->state == nullptr || slot->state->owner_ == this);
  }
}

}  // namespace gpupool::internal
