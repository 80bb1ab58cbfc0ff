// A simulated device, a pool on it, the program that uses both, and the model that watches them.
// Operations act on it; after each, everything that can be checked from outside is.
//
// The program in here is a correct one: before it uses or frees a block on another stream, it
// makes that stream wait (order), unless record_stream or record_use is meant to make that
// unnecessary. So whatever goes wrong is the pool's fault.
//
// Thread safety: none.
#ifndef GPUPOOL_TESTS_SUPPORT_WORLD_H_
#define GPUPOOL_TESTS_SUPPORT_WORLD_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpupool/faulty_backend.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/model.h"
#include "tests/support/occupancy.h"
#include "tests/support/operation.h"

namespace gpupool::test {

struct WorldOptions {
  Backing backing = Backing::vmm;
  /// Real memory: every work checks the block's pattern and writes it.
  SimulatedMemory memory = SimulatedMemory::address_only;
  std::uint64_t capacity_bytes = std::uint64_t{64} << 20;
  std::uint64_t reserve_bytes = 0;
  StreamSlot stream_count = 3;
  std::uint64_t cache_small_bytes = std::uint64_t{4} << 20;
  std::uint64_t cache_large_bytes = std::uint64_t{32} << 20;
  /// The n-th backend call after the device's start fails, the pool's own start included; 0: none.
  std::uint64_t failing_call = 0;
  Error failing_error = Error::backend_failure;
  Recycling recycling = Recycling::off;
  double slack = 0.005;
  AliasReuse alias_reuse = AliasReuse::wait;
  /// A few looks: each is a number of backend calls, of which each is made to fail.
  std::uint64_t out_of_memory_wait_ns = 100'000;
  CrossStreamPolicy policy = CrossStreamPolicy::when_done;
  /// Empty pages are owed to every request: what recycling promises (occupancy.h).
  bool owes_empty_pages = false;
  /// While the pool is in a driver call for an event, operations that follow in the list are
  /// applied, as by another thread.
  bool lets_others_in = false;
};
std::string to_text(const WorldOptions& options);

/// Counts events by kind.
class CountingObserver final : public SlowPathObserver {
 public:
  void on_event(const SlowPathEvent& event) noexcept override {
    ++counts_[static_cast<std::size_t>(event.kind)];
    if (event.kind != SlowPathEventKind::driver_call) return;
    if (event.failed) {
      ++failed_driver_calls_;
    } else if (event.operation == DriverOperation::create ||
               event.operation == DriverOperation::allocate) {
      taken_bytes_ += event.bytes;
    }
  }
  std::uint64_t count(SlowPathEventKind kind) const {
    return counts_[static_cast<std::size_t>(kind)];
  }
  std::uint64_t failed_driver_calls() const { return failed_driver_calls_; }
  /// That the device gave.
  std::uint64_t taken_bytes() const { return taken_bytes_; }

 private:
  std::array<std::uint64_t, 16> counts_{};
  std::uint64_t failed_driver_calls_ = 0;
  std::uint64_t taken_bytes_ = 0;
};

class World {
 public:
  explicit World(const WorldOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Applies the list, checks after each operation, ends the pool and checks that nothing is left.
  /// What went wrong first, in words.
  std::optional<std::string> run(const OperationList& list);

  // For operations.
  struct Stream {
    RawStream raw = nullptr;
    StreamRef ref;
    StreamKey key = 0;
    bool is_adopted = false;
  };
  struct Use {
    StreamKey stream = 0;
    bool is_recorded = false;  // record_stream or record_use covers all of it
    bool is_at_free = false;   // by record_stream: later work, too
    bool is_awaited = false;   // the pool waits for it, since some of it was recorded
  };
  struct Block {
    char* pointer = nullptr;
    std::uint64_t bytes = 0;
    StreamKey owner = 0;
    std::uint64_t pattern = 0;
    std::vector<Use> uses;
    std::uint64_t plain_bytes = 0;  // of the driver allocation that it is; 0: in the arena
    StreamKey waits_for = 0;        // once freed, too, which ended without a word; 0: none
  };
  /// nullptr where there is none.
  Stream* find_stream(StreamSlot slot);
  Block* find_block(BlockName name);
  void start_stream(StreamSlot slot, bool is_adopted);
  void end_stream(StreamSlot slot);
  /// Makes `later` wait for all that `earlier` was given, as a program does with an event.
  void order(const Stream& later, StreamKey earlier);
  /// Work on a block, ordered after all other work on it.
  void launch(Block& block, const Stream& stream, std::uint64_t duration_ns, bool until_completed);
  void fail(const std::string& text) {
    if (!failure_) failure_ = text;
  }
  // judging.cc
  /// Whether a request may be judged by what is occupied: empty pages are owed, and nothing is in
  /// the way of that but the pool itself.
  bool is_judged() const;
  /// Streams whose work is not finished now, ended ones among them.
  Occupancy::Busy busy_streams();
  /// After a call that empties the caches and looks for completed work, which `busy` and
  /// `others` (let in) describe as they were before it.
  void note_flush(const Occupancy::Busy& busy, std::uint64_t others);
  /// Fails if pages enough were empty for a request that was refused; `busy` as before it.
  void judge_refusal(const Allocate& request, const Occupancy::Busy& busy);

  /// What `call` gives, tried again as long as a fault that was asked for hits it.
  template <class Call>
  bool retry_if_faulted(Call call) {
    for (;;) {
      const std::uint64_t before = faulty.failed_count();
      if (call()) return true;
      if (faulty.failed_count() == before) return false;
    }
  }

  const WorldOptions options;
  SimulatedBackend device;
  FaultyBackend faulty;
  CountingObserver observer;
  Model model;
  Occupancy occupancy;
  std::unique_ptr<Pool> pool;
  std::map<BlockName, Block> blocks;
  std::vector<char*> freed;   // addresses of former blocks
  StreamRef released_stream;  // a StreamRef that is no longer valid
  std::uint64_t handled_misuses = 0;
  std::uint64_t taken_by_others = 0;
  std::uint64_t others_let_in = 0;    // operations that were applied inside of another
  std::uint64_t asked_for_all = 0;    // times that what must fit was asked for
  std::vector<char*> handed_out;      // every block, in order
  StatsV1 last_stats;                 // from before the pool ended
  bool has_faults = false;            // some call was made to fail
  bool has_lost_completions = false;  // so that some memory may rightly stay pending for ever

 private:
  // others.cc
  void watch_event_calls();
  void let_another_in();
  bool may_come_in(const Operation& operation);

  /// Whether what was checked after an operation may come out otherwise than in a run before: up to
  /// the call that is to fail, no.
  bool has_anything_new() const;
  void check();
  void check_books(const StatsV1& stats);
  void check_events(const StatsV1& stats);
  void check_map(const StatsV1& stats);
  // judging.cc
  void check_growth(const StatsV1& stats);
  void check_moves();
  void finish();
  std::string start_fault_;

  const OperationList* list_ = nullptr;
  std::size_t next_ = 0;              // in the list
  const Operation* outer_ = nullptr;  // what lets others in

  std::vector<Stream> streams_;
  std::map<StreamKey, RawStream> raw_by_key_;
  std::map<StreamKey, EventHandle> last_event_;  // of ended streams
  std::set<StreamKey> unannounced_;              // that ended so: the pool never learns of it
  StreamKey last_key_ = 0;
  std::shared_ptr<std::string> corruption_ = std::make_shared<std::string>();
  std::optional<std::string> failure_;

  // As of the last check_growth().
  std::size_t known_blocks_ = 0;            // of handed_out
  std::set<std::uint64_t> occupied_pages_;  // on which something lies that is not free
  std::uint64_t most_occupied_pages_ = 0;   // ever
  std::uint64_t arena_pages_ = 0;           // held for the arena
};

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SUPPORT_WORLD_H_
