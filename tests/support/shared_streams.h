// Threads that share a few streams: each allocates on any of them, uses what it has on others,
// hands it on, and frees what it gets on a stream of its choice. Uses elsewhere are declared by
// record_stream or record_use, or ordered before the free.
//
// The work that is given to the streams writes a pattern into each block and looks for it at every
// later use, so that a block that two hold at once shows. What gives that work, to the simulated
// device or to a card, is the Device:
//
//   RawStream stream(int number)
//   bool fill(RawStream, void* pointer, std::uint64_t bytes, std::uint32_t seed)
//   bool check(RawStream, void* pointer, std::uint64_t bytes, std::uint32_t seed)
//   bool order(RawStream earlier, RawStream later)     later work of `later` waits
//
// each false where the device refuses it. Thread safety: the Device's methods are called from all
// threads. Header only, for programs that do not share a library.
#ifndef GPUPOOL_TESTS_SUPPORT_SHARED_STREAMS_H_
#define GPUPOOL_TESTS_SUPPORT_SHARED_STREAMS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "gpupool/pool.h"
#include "tests/support/basket.h"

namespace gpupool {

template <class Device>
class SharedStreams {
 public:
  static constexpr int kThreads = 8;
  static constexpr int kStreams = 4;

  SharedStreams(Pool& pool, Device& device) : pool_(pool), device_(device) {
    for (int i = 0; i < kStreams; ++i) refs_[i] = pool_.adopt_stream(device_.stream(i)).value();
  }

  /// Runs all threads for that long, a maintaining one beside them, and frees what is left.
  void run(std::chrono::milliseconds duration) {
    const auto end = std::chrono::steady_clock::now() + duration;
    std::atomic<bool> is_over{false};
    std::thread maintainer([&] {
      for (unsigned round = 0; !is_over; ++round) {
        pool_.maintain();
        if (round % 64 == 0) pool_.drain_caches();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { run_thread(i, end); });
    for (std::thread& thread : threads) thread.join();
    is_over = true;
    maintainer.join();
    for (Block block; shared_.take(block);) free(block, block.owner);
  }

  std::uint64_t served() const { return served_; }
  std::uint64_t used_elsewhere() const { return used_elsewhere_; }
  std::uint64_t freed_elsewhere() const { return freed_elsewhere_; }
  /// Calls that the pool or the device did not take; 0 in a run that is right.
  std::uint64_t failures() const { return failures_; }

 private:
  struct Block {
    void* pointer = nullptr;
    std::uint64_t bytes = 0;
    std::uint32_t seed = 0;
    int owner = 0;           // the stream it was allocated on
    bool is_in_use = false;  // by another stream, for all that the freeing one knows
  };

  void expect(bool is_done) {
    if (!is_done) ++failures_;
  }

  static std::uint64_t any_size(std::mt19937_64& random) {
    switch (random() % 4) {
      case 0: return 16 + random() % (32 << 10);
      case 1: return 16 + random() % (128 << 10);
      case 2: return std::uint64_t{1} << 20;
      default: return 16 + random() % (std::uint64_t{12} << 20);
    }
  }

  void run_thread(unsigned self, std::chrono::steady_clock::time_point end) {
    std::mt19937_64 random(self + 1);
    const auto any_stream = [&random] { return static_cast<int>(random() % kStreams); };
    while (std::chrono::steady_clock::now() < end) {
      Block block;
      block.bytes = any_size(random);
      block.owner = any_stream();
      block.seed = static_cast<std::uint32_t>(random());
      const auto result = pool_.allocate(block.bytes, refs_[block.owner]);
      if (result.ok()) {
        ++served_;
        block.pointer = result.value();
        expect(device_.fill(device_.stream(block.owner), block.pointer, block.bytes, block.seed));
        const int user = any_stream();
        if (user != block.owner) use_elsewhere(block, user, random() % 2 == 0);
        shared_.put(block);
      }
      // Mostly another thread's. About as many as are allocated, and more where there is no room.
      for (std::uint64_t left = result.ok() ? random() % 3 : 4; left > 0; --left) {
        Block other;
        if (shared_.take(other)) free(other, random() % 2 == 0 ? other.owner : any_stream());
      }
    }
  }

  void use_elsewhere(Block& block, int user, bool by_stream) {
    ++used_elsewhere_;
    block.is_in_use = true;
    expect(device_.order(device_.stream(block.owner), device_.stream(user)));
    expect(device_.check(device_.stream(user), block.pointer, block.bytes, block.seed));
    expect(by_stream ? pool_.record_stream(block.pointer, refs_[user])
                     : pool_.record_use(block.pointer, refs_[user]));
  }

  void free(const Block& block, int stream) {
    if (stream != block.owner) {
      ++freed_elsewhere_;
      expect(device_.order(device_.stream(block.owner), device_.stream(stream)));
    }
    // Two uses at once count as a race on the simulated device, whatever they do.
    if (!block.is_in_use) {
      expect(device_.check(device_.stream(stream), block.pointer, block.bytes, block.seed));
    }
    expect(pool_.deallocate(block.pointer, block.bytes, refs_[stream]));
  }

  Pool& pool_;
  Device& device_;
  std::array<StreamRef, kStreams> refs_;
  Basket<Block> shared_;
  std::atomic<std::uint64_t> served_{0};
  std::atomic<std::uint64_t> used_elsewhere_{0};
  std::atomic<std::uint64_t> freed_elsewhere_{0};
  std::atomic<std::uint64_t> failures_{0};
};

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_SUPPORT_SHARED_STREAMS_H_
