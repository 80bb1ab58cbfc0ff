// The streams that a pool knows, and how far each is known to have come.
//
// Frees on a stream fall into its open epoch. An epoch is closed with one event (not one a free);
// when that event is complete, so is every free of that epoch and of all before it.
//
//   shared <= complete <= recorded < open
//   up to `complete` all is complete; up to `recorded` an event covers it; between that and `open`
//   lies what was closed, and no event could be recorded: the stream's next event covers it; up to
//   `shared` others may have what was freed: that is `complete`, or where streams are kept apart
//   what was complete when the stream was released
//
// The driver is not called from here. Closing an epoch is three steps:
//   begin_close    the open epoch ends: what is freed from now on falls into the next
//   EpochEvents    records the event, without the pool's lock; it comes after all of that epoch
//   end_close      the epoch is recorded, or it waits for the next event
// Were the event recorded first, what is freed between that and the end of the epoch would count
// as covered, and is not.
//
// Rules kept here:
//   - only its own thread closes an epoch of a per-thread default stream, since an event that
//     another thread records for it goes to the wrong stream;
//   - nothing is recorded for a stream that was released or disowned, nor for one that is left to
//     another thread (stream_holds.h), whose epoch stays open;
//   - nothing is recorded for a pseudo-stream, see the note;
//   - an index is used again only when everything of the old stream is complete.
//
// Note [Pseudo-streams]
// What a private pool serves, to a graph capture or while the program asks for it, is used by work
// that no event covers: the graph may be launched again at any time, on any stream. So it is freed
// on a pseudo-stream, which has an index like a stream and no epoch of which is ever complete: by
// the ticket the memory is reused by the pseudo-stream itself at once, and neither given to anybody
// else nor moved, unmapped or given back, with no rule of its own for that anywhere. When the
// program has released the private pool, and all work of the device is complete, so is all of the
// pseudo-stream (complete_pseudo).
//
// Note [Order]
// Where one stream was made to wait for another, by the program (note_dependency) or by the pool
// (CrossStreamPolicy::wait), what the other had freed by then is as good as its own: a list of
// tickets, the latest of each stream, at most kMaxOrders. What a stream comes after by the time
// that another waits for, that one comes after as well. To forget some is safe.
//
// Thread safety: under the pool's lock; is_known() and what StreamState says from any thread. Only
// one thread at a time is between begin_close() and end_close(), or between EpochEvents::poll() and
// complete(): the pool's events_mu_. Cost: O(1), the methods about all streams one step for each.
#ifndef GPUPOOL_STREAM_STREAM_TABLE_H_
#define GPUPOOL_STREAM_STREAM_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/fixed_ring.h"
#include "gpupool/stream.h"
#include "stream/epoch_events.h"
#include "stream/stream_holds.h"
#include "stream/ticket.h"

namespace gpupool::internal {

/// What a StreamRef points to. Kept for a while after its release, so that late use is noticed.
class StreamState {
 public:
  StreamIndex index() const noexcept { return index_; }
  std::uint64_t id() const noexcept { return id_; }
  RawStream raw() const noexcept { return raw_; }
  bool is_released() const noexcept { return released_.load(std::memory_order_acquire); }
  bool is_pseudo() const noexcept { return is_pseudo_; }
  /// Of the stream whose requests a pseudo-stream serves; of any other its own.
  StreamIndex shown_index() const noexcept { return shown_index_; }
  const void* owner() const noexcept { return owner_; }

 private:
  friend class StreamTable;
  const void* owner_ = nullptr;  // the table it belongs to
  StreamIndex index_ = 0;
  StreamIndex shown_index_ = 0;
  std::uint64_t id_ = 0;
  RawStream raw_ = nullptr;
  bool is_pseudo_ = false;
  std::atomic<bool> released_ = false;
  std::uint64_t thread_ = 0;  // thread_serial() of a per-thread default stream's
};

class StreamTable {
 public:
  StreamTable() = default;
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  /// The stream that `raw` named before it came back with the identity `id`, and so was destroyed
  /// unannounced; nullptr if there is none. Nothing is recorded for it any more; the caller puts
  /// tickets on what it left in caches, and releases it.
  StreamState* disown(RawStream raw, std::uint64_t id);
  /// The state of the stream with this driver identity; made where there is none. nullptr where
  /// kMaxStreams indices are in use, by streams or by what ended ones left unfinished. Requires:
  /// what disown() gave for it is released.
  StreamState* adopt(RawStream raw, std::uint64_t id);
  /// A pseudo-stream for requests of `stream`; nullptr as adopt(). Not found by identity or handle.
  StreamState* adopt_pseudo(const StreamState& stream);
  /// Stands for every stream that cannot be told: no event tells of its work, nor does it end.
  StreamIndex nameless();
  /// Ends a pseudo-stream, all of whose work is complete.
  void complete_pseudo(StreamState* state);
  /// Epochs that end now, and of which no event will tell: of streams that have ended without one,
  /// and of those for which the driver has refused one. Requires: nobody is recording.
  std::vector<Ticket> close_unawaited();
  /// All work of one of those is complete. Nothing where an event tells by now. Requires: nobody is
  /// recording.
  void complete_unawaited(Ticket ticket);
  bool is_pseudo(StreamIndex stream) const noexcept {
    return stream < slots_.size() && slots_[stream]->is_pseudo;
  }
  bool has_pseudo() const noexcept { return !pseudo_.empty(); }
  std::uint64_t group_of(StreamIndex stream) const noexcept {
    return slots_[stream]->is_pseudo ? Fence::kPseudo : Fence::group_of(stream);
  }
  StreamState* find(std::uint64_t id) const;
  /// By the handle as it was last asked; nullptr where that never was.
  StreamState* find_named(RawStream raw) const;
  /// Of the stream that the handle named when it was last asked; one that is made up, and no
  /// stream's, where that never was. Of per-thread streams, which share a handle, always that.
  std::uint64_t id_named(RawStream raw) {
    const auto known = id_by_raw_.find(raw);
    return known != id_by_raw_.end() ? known->second : kFirstMadeUpId + made_up_ids_++;
  }
  bool is_known(const StreamState* state) const noexcept {
    return state != nullptr && state->owner_ == this && !state->is_released();
  }
  /// Ends the stream. What is to be recorded for it, if anything, while it still exists: the caller
  /// goes on as after begin_close(). The index is used again once all is complete.
  std::optional<EpochEnd> release(StreamState* state);

  /// A ticket for something freed on `stream` now.
  Ticket ticket(StreamIndex stream) {
    Slot& slot = *slots_[stream];
    if (slot.open_first_use == 0) slot.open_first_use = sequence_;
    return {stream, slot.open};
  }
  /// All epochs up to this one are complete.
  std::uint64_t complete_epoch(StreamIndex stream) const noexcept {
    return slots_[stream]->complete;
  }
  bool is_complete(Ticket ticket) const noexcept {
    return complete_epoch(ticket.stream) >= ticket.epoch;
  }
  /// All epochs up to this one are complete, and others may have what was freed then.
  std::uint64_t shared_epoch(StreamIndex stream) const noexcept { return slots_[stream]->shared; }
  bool is_shared(Ticket ticket) const noexcept {
    return shared_epoch(ticket.stream) >= ticket.epoch;
  }
  /// Whether what a stream has freed is kept for it until it is released
  /// (CrossStreamPolicy::never): from now on, or no more.
  void keep_apart(bool is_on);
  bool keeps_apart() const noexcept { return keeps_apart_; }
  /// Whether the index is of a stream that was not released.
  bool is_there(StreamIndex stream) const noexcept { return slots_[stream]->state != nullptr; }
  // Order between streams, see Note [Order].
  /// What `later` is given from now on comes after that epoch. `is_by_pool`: the pool has made it
  /// wait.
  void order(StreamIndex later, Ticket earlier, bool is_by_pool);
  /// And after all that the ticket's stream comes after now. Requires: that stream was not made to
  /// wait for anything since what `later` waits for, an event in flight of an earlier time for one.
  void order_after_all(StreamIndex later, Ticket earlier, bool is_by_pool);
  bool has_order(StreamIndex stream) const noexcept { return !slots_[stream]->after.empty(); }
  /// Whether the ticket is complete, or what `stream` is given now comes after it anyhow.
  bool is_after(StreamIndex stream, Ticket ticket) const noexcept {
    return ticket.stream == stream || is_complete(ticket) || find_order(stream, ticket) != nullptr;
  }
  /// Whether the pool has made `stream` wait for that.
  bool has_waited_for(StreamIndex stream, Ticket ticket) const noexcept {
    const Order* const order = find_order(stream, ticket);
    return ticket.stream != stream && order != nullptr && order->is_by_pool;
  }
  /// The latest epoch that has ended; of what is freed from now on none falls into it.
  Ticket last_ended(StreamIndex stream) const noexcept {
    return {stream, slots_[stream]->open - 1};
  }
  /// Whether an event covers the epoch, or did.
  bool is_recorded(Ticket ticket) const noexcept {
    return slots_[ticket.stream]->recorded >= ticket.epoch;
  }
  const InFlightEvents& events_of(StreamIndex stream) const noexcept {
    return slots_[stream]->events;
  }
  /// Whether the calling thread may give the stream something by its handle.
  bool is_own_handle(const StreamState& state) const noexcept;

  StreamHolds& holds() noexcept { return holds_; }
  /// Whether the calling thread neither asks for the stream's identity nor records for it.
  bool is_left_alone(const StreamState& state) const noexcept;
  /// The stream that the handle named when it was last asked, where that is left alone.
  StreamState* find_left_alone(RawStream raw) const noexcept;

  /// The number of this moment, for a fence.
  std::uint64_t make_fence() noexcept { return sequence_++; }
  bool is_fence_complete(const Fence& fence) const noexcept;
  bool is_fence_shared(const Fence& fence) const noexcept {
    return is_fence_complete(fence) && (!keeps_apart_ || is_fence_released(fence));
  }

  /// Whether something was freed on the stream that no event covers.
  bool needs_event(StreamIndex stream) const noexcept;
  /// Ends the open epoch where something was freed in it. What is to be recorded; nothing where
  /// all is covered, or nothing may be recorded.
  std::optional<EpochEnd> begin_close(StreamIndex stream) {
    const StreamState* const state = slots_[stream]->state;
    if (!holds_.empty() && state != nullptr && is_left_alone(*state)) [[unlikely]]
      return std::nullopt;
    return end_open(stream);
  }
  /// The same for all streams, added to `ends`.
  void begin_close_all(std::vector<EpochEnd>& ends);
  void end_close(const EpochEnd& end);
  /// The event that closed the ticket's epoch is complete.
  void complete(Ticket ticket);
  /// Something was freed on a per-thread default stream: its own thread closes the epoch every few
  /// hundred times, since nobody else can.
  void note_own_free(StreamIndex stream) noexcept { ++slots_[stream]->own_frees; }
  bool is_own_close_due(StreamIndex stream) const noexcept;
  /// Takes a ticket of every stream, so that what is waited for next is all that they were given.
  void open_all();
  /// Whether an event of the stream is in flight, and of any; what has none is not waited for.
  bool is_awaited(StreamIndex stream) const noexcept {
    return slots_[stream]->recorded > slots_[stream]->complete;
  }
  bool has_awaited() const noexcept;
  /// True while any stream has an epoch that is not known complete, and may become so by an event.
  bool has_unfinished() const noexcept;

  std::uint64_t id_of(StreamIndex stream) const noexcept {
    return stream < slots_.size() ? slots_[stream]->id : 0;
  }
  /// The handle of the stream that has this index now, of a pseudo-stream that of its stream;
  /// nothing where it has ended.
  std::optional<RawStream> find_raw(StreamIndex stream) const noexcept {
    const StreamState* const state = stream < slots_.size() ? slots_[stream]->state : nullptr;
    if (state == nullptr) return std::nullopt;
    return state->raw();
  }
  /// The same as a number, for reports.
  std::optional<std::uint64_t> find_handle(StreamIndex stream) const noexcept {
    const auto raw = find_raw(stream);
    if (!raw.has_value()) return std::nullopt;
    return handle_of(*raw);
  }
  static std::uint64_t handle_of(RawStream raw) noexcept {
    return reinterpret_cast<std::uintptr_t>(raw);
  }
  /// Whether the index is that of the legacy default stream.
  bool is_default(StreamIndex stream) const noexcept {
    const StreamState* const state = slots_[stream]->state;
    return state != nullptr && state->raw() == nullptr;
  }
  /// Those that name its streams.
  std::vector<RawStream> handles() const;
  std::size_t stream_count() const noexcept { return by_id_.size(); }
  std::size_t index_count() const noexcept { return slots_.size(); }
  std::uint64_t epochs_closed() const noexcept { return epochs_closed_; }
  std::uint64_t epochs_completed() const noexcept { return epochs_completed_; }
  /// A handle was found to be another stream's than it was.
  void note_mismatch() noexcept { ++mismatches_; }
  std::uint64_t mismatches() const noexcept { return mismatches_; }
  /// Requires: no thread is between the steps of a close.
  void check_invariants() const;

  static constexpr std::size_t kMaxStreams = 65536;

 private:
  static constexpr std::size_t kMaxOrders = 32;
  struct Order {
    Ticket ticket;
    bool is_by_pool = false;
  };
  struct ClosedEpoch {
    std::uint64_t epoch = 0;
    std::uint64_t first_use = 0;
  };
  struct Slot {
    std::uint64_t id = 0;
    std::uint64_t complete = 0;
    std::uint64_t shared = 0;
    std::uint64_t recorded = 0;
    std::uint64_t open = 1;
    std::uint64_t own_frees = 0;       // counted by note_own_free(), since the last close
    std::uint64_t open_first_use = 0;  // sequence number of the first free in it; 0: none
    StreamState* state = nullptr;      // nullptr once released
    bool can_record = true;            // false once its handle may be another stream's
    bool was_refused = false;  // by the driver, the last time that an event was to be recorded
    bool is_pseudo = false;    // until all of it is complete
    // Not known complete, oldest first. A ring, since a free must not take memory from the heap.
    FixedRing<ClosedEpoch, kMaxClosedEpochs> closed;
    std::vector<Order> after;  // what it is given now comes after these
    InFlightEvents events;
  };

  static void end_epoch(Slot& slot);
  /// begin_close() of whoever the stream is.
  std::optional<EpochEnd> end_open(StreamIndex stream);
  /// A slot that is not in use, or a new one; nothing where there are kMaxStreams, one of which is
  /// kept for nameless().
  std::optional<StreamIndex> find_slot();
  StreamIndex add_slot();
  std::unique_ptr<StreamState> make_state(StreamIndex index, RawStream raw, std::uint64_t id);
  /// No stream of those groups is there any more.
  bool is_fence_released(const Fence& fence) const noexcept;
  /// Others may have what is complete, if they may.
  void share(Slot& slot) noexcept {
    if (!keeps_apart_ || slot.state == nullptr) slot.shared = slot.complete;
  }
  const Order* find_order(StreamIndex stream, Ticket ticket) const noexcept;
  void add_order(Slot& slot, Order order);
  void keep_released(std::unique_ptr<StreamState> state);
  void retire_if_complete(StreamIndex stream);

  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<StreamIndex> free_indices_;
  std::unordered_map<std::uint64_t, std::unique_ptr<StreamState>> by_id_;
  std::unordered_map<RawStream, std::uint64_t> id_by_raw_;
  std::optional<StreamIndex> nameless_;
  std::vector<std::unique_ptr<StreamState>> pseudo_;
  std::deque<std::unique_ptr<StreamState>> released_;
  StreamHolds holds_;
  /// The driver counts from below.
  static constexpr std::uint64_t kFirstMadeUpId = std::uint64_t{1} << 63;
  std::uint64_t made_up_ids_ = 0;
  std::uint64_t sequence_ = 1;
  bool keeps_apart_ = false;
  std::uint64_t epochs_closed_ = 0;
  std::uint64_t epochs_completed_ = 0;
  std::uint64_t mismatches_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_STREAM_STREAM_TABLE_H_
