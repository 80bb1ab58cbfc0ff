// The streams that a pool knows, and how far each is known to have come.
//
// Frees on a stream fall into its open epoch. Closing an epoch records one event (not one a free);
// when that event is complete, so is every free of that epoch and of all before it.
//
//   complete epochs < epochs with an event, oldest first < the open epoch
//
// Rules kept here:
//   - only its own thread closes an epoch of a per-thread default stream, since an event that
//     another thread records for it goes to the wrong stream;
//   - nothing is recorded into a stream that is being captured: its epoch stays open;
//   - nothing is recorded by a handle that has become another stream's;
//   - an index is used again only when everything of the old stream is complete.
//
// Thread safety: under the pool's lock, but for the identity asked of the driver before it.
// Cost: an event record a closed epoch, a query for the oldest event of each stream that has one.
#ifndef GPUPOOL_STREAM_STREAM_TABLE_H_
#define GPUPOOL_STREAM_STREAM_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "gpupool/backend.h"
#include "stream/ticket.h"

namespace gpupool::internal {

/// What a StreamRef points to. Kept for a while after its release, so that late use is noticed.
class StreamState {
 public:
  StreamIndex index() const noexcept { return index_; }
  std::uint64_t id() const noexcept { return id_; }
  RawStream raw() const noexcept { return raw_; }
  bool is_released() const noexcept { return released_; }
  const void* owner() const noexcept { return owner_; }

 private:
  friend class StreamTable;
  const void* owner_ = nullptr;  // the table it belongs to
  StreamIndex index_ = 0;
  std::uint64_t id_ = 0;
  RawStream raw_ = nullptr;
  bool released_ = false;
  std::uint64_t thread_ = 0;  // thread_serial() of a per-thread default stream's
};

class StreamTable {
 public:
  explicit StreamTable(Backend& backend) : backend_(backend) {}
  ~StreamTable();
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
  StreamState* find(std::uint64_t id) const;
  bool is_known(const StreamState* state) const noexcept {
    return state != nullptr && state->owner_ == this && !state->released_;
  }
  /// Announces the stream's end: closes its epoch; its index is used again once all is complete.
  void release(StreamState* state);

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
  /// The number of this moment, for a fence.
  std::uint64_t make_fence() noexcept { return sequence_++; }
  bool is_fence_complete(const Fence& fence) const noexcept;

  /// Closes the open epoch where something was freed in it. False where it has to stay open.
  bool close_epoch(StreamIndex stream);
  void close_epochs();
  /// Something was freed on a per-thread default stream: its own thread closes the epoch every few
  /// hundred times, since nobody else can.
  void note_own_free(StreamIndex stream);
  /// Looks at the oldest events; returns how many epochs are newly complete.
  std::uint64_t poll();
  /// Takes a ticket of every stream, so that what is waited for next is all that they were given.
  void open_all();
  /// True while any stream has an epoch that is not known complete.
  bool has_unfinished() const noexcept;
  /// Waits for all that was freed so far, for the pool's end. Errors of the driver end the wait.
  void synchronize();

  std::uint64_t id_of(StreamIndex stream) const noexcept {
    return stream < slots_.size() ? slots_[stream]->id : 0;
  }
  std::size_t stream_count() const noexcept { return by_id_.size(); }
  std::size_t index_count() const noexcept { return slots_.size(); }
  std::uint64_t epochs_closed() const noexcept { return epochs_closed_; }
  /// A handle was found to be another stream's than it was.
  void note_mismatch() noexcept { ++mismatches_; }
  std::uint64_t mismatches() const noexcept { return mismatches_; }
  void check_invariants() const;

  static constexpr std::size_t kMaxStreams = 65536;

 private:
  struct InFlight {
    std::uint64_t epoch = 0;
    std::uint64_t first_use = 0;
    EventHandle event;
  };
  /// Epochs of one stream. A ring, since a free must not take memory from the heap.
  struct Slot {
    static constexpr std::size_t kMaxInFlight = 64;
    std::uint64_t id = 0;
    std::uint64_t complete = 0;
    std::uint64_t open = 1;
    std::uint64_t own_frees = 0;       // counted by note_own_free()
    std::uint64_t open_first_use = 0;  // sequence number of the first free in it; 0: none
    StreamState* state = nullptr;      // nullptr once released
    bool can_record = true;            // false once its handle may be another stream's
    std::array<InFlight, kMaxInFlight> ring{};
    std::size_t head = 0;
    std::size_t size = 0;
  };

  bool may_record(const Slot& slot) const;
  void retire_if_complete(StreamIndex stream);
  Result<EventHandle> take_event();
  /// With no room for another event, the newest moves on, and covers the open epoch, too.
  bool extend_newest(Slot& slot);

  Backend& backend_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<StreamIndex> free_indices_;
  std::vector<EventHandle> free_events_;
  std::unordered_map<std::uint64_t, std::unique_ptr<StreamState>> by_id_;
  std::unordered_map<RawStream, std::uint64_t> id_by_raw_;
  std::deque<std::unique_ptr<StreamState>> released_;
  std::uint64_t sequence_ = 1;
  std::uint64_t epochs_closed_ = 0;
  std::uint64_t mismatches_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_STREAM_STREAM_TABLE_H_
