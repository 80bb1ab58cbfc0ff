// A pool on each of several devices, as one process of several devices has them; and how everybody
// here calls a pool: with a look, each time, at what the thread has current before and after.
//
// Thread safety: a Watch and a Fleet may be used from any thread; a PoolStream by one at a time.
#ifndef GPUPOOL_TESTS_GPU_PEERS_FLEET_H_
#define GPUPOOL_TESTS_GPU_PEERS_FLEET_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "gpupool/pool.h"
#include "tests/gpu/kernels.h"
#include "tests/gpu/peers/device_calls.h"
#include "tests/gpu/peers/ramps.h"
#include "tests/gpu/peers/report.h"

namespace gpupool::gpu_tests {

/// How the pools get their memory.
struct Mode {
  const char* name = "";
  Backing backing = Backing::vmm;
  ContiguousBacking contiguous = ContiguousBacking::cudamalloc;
  bool moves_pages() const { return backing == Backing::vmm; }
};
inline constexpr Mode kEager = {"eager", Backing::vmm, ContiguousBacking::cudamalloc};
inline constexpr Mode kCudaMalloc = {"cudamalloc", Backing::cudamalloc,
                                     ContiguousBacking::cudamalloc};
/// Blocks of the contiguous class are handles of their own.
inline constexpr Mode kEagerHandle = {"eager-handle", Backing::vmm, ContiguousBacking::handle};

/// What there is of a device beside its pool.
struct Card {
  int device = 0;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Kernels> kernels;
  std::unique_ptr<Ramps> ramps;
};
using Cards = std::vector<Card>;
Cards open_cards(int count);

class Watch {
 public:
  /// With `holds_launches`, calls of pools and launches of collectives exclude each other.
  Watch(Report& report, bool holds_launches) : report_(report), holds_launches_(holds_launches) {}

  Report& report() { return report_; }
  std::uint64_t calls() const { return calls_.load(); }

  /// What `call`, of a pool, gives. The thread's device and context are to be as before.
  template <class Call>
  auto ask(const char* name, Call&& call) {
    std::shared_lock<std::shared_mutex> lock(launches_, std::defer_lock);
    if (holds_launches_) {
      while (is_launch_wanted_.load()) std::this_thread::yield();  // readers would starve it
      lock.lock();
    }
    ++calls_;
    const Place before = current_place();
    if constexpr (std::is_void_v<std::invoke_result_t<Call>>) {
      call();
      expect(name, before);
    } else {
      auto result = call();
      expect(name, before);
      return result;
    }
  }
  /// To be held while a collective is launched on one device after the other.
  std::unique_lock<std::shared_mutex> launching() {
    std::unique_lock<std::shared_mutex> lock(launches_, std::defer_lock);
    if (!holds_launches_) return lock;
    is_launch_wanted_ = true;
    lock.lock();
    is_launch_wanted_ = false;
    return lock;
  }

 private:
  void expect(const char* name, const Place& before) {
    const Place after = current_place();
    if (!(after == before)) {
      report_.fault(name, "left " + to_text(after) + " current; before it was " + to_text(before));
    }
  }

  Report& report_;
  const bool holds_launches_;
  std::shared_mutex launches_;
  std::atomic<bool> is_launch_wanted_{false};
  std::atomic<std::uint64_t> calls_{0};
};

class Fleet {
 public:
  Fleet(Cards& cards, const Mode& mode, std::uint64_t capacity_bytes, Watch& watch);
  /// Ends the maintainers and the pools. Requires: no stream of theirs is left.
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  std::size_t count() const { return cards_.size(); }
  const Mode& mode() const { return mode_; }
  Card& card(std::size_t i) { return cards_[i]; }
  Pool& pool(std::size_t i) { return *pools_[i]; }
  Watch& watch() { return watch_; }
  Report& report() { return watch_.report(); }
  /// The n-th device that is not this one; with one device, that.
  int away_from(std::size_t i, std::size_t n) const;
  /// For each device: to where they were needed, or back to the driver where they cannot move.
  std::vector<std::uint64_t> pages_moved() const;
  /// What is wrong once everybody has given back what he had.
  void expect_empty();

 private:
  void open_pool(std::size_t i, std::uint64_t capacity_bytes);
  void maintain(std::size_t i);
  void close();

  Cards& cards_;
  const Mode mode_;
  Watch& watch_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::atomic<bool> is_ending_{false};
  std::vector<std::thread> maintainers_;
};

/// The options of a pool of `device` beside `count - 1` others.
PoolOptions options_for(const Mode& mode, int device, int count, std::uint64_t capacity_bytes);

/// A stream of one device, known to its pool, and blocks in its order.
class PoolStream {
 public:
  PoolStream(Fleet& fleet, std::size_t card);
  ~PoolStream();
  PoolStream(const PoolStream&) = delete;
  PoolStream& operator=(const PoolStream&) = delete;

  std::size_t index() const { return index_; }
  int device() const { return fleet_.card(index_).device; }
  Kernels& kernels() { return *fleet_.card(index_).kernels; }
  Ramps& ramps() { return *fleet_.card(index_).ramps; }
  cudaStream_t raw() const { return raw_; }
  void synchronize() { must(cudaStreamSynchronize(raw_), "waiting for a stream"); }

  /// nullptr where the pool has not got that much.
  void* find_block(std::size_t bytes, AllocationClass allocation_class = AllocationClass::normal);
  /// The same where it must have, if not at once.
  void* get_block(std::size_t bytes, AllocationClass allocation_class = AllocationClass::normal);
  void free_block(void* block);
  /// Waits until the pool knows that what was freed on this stream is complete.
  void settle();

 private:
  Fleet& fleet_;
  const std::size_t index_;
  cudaStream_t raw_ = nullptr;
  StreamRef ref_;
};

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_PEERS_FLEET_H_
