// B3: the handle of a thread's own default stream has the same value in every thread, and names
// another stream in each (NVIDIA/cccl#878).
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>

#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/rendezvous.h"

namespace gpupool::test {
namespace {

constexpr std::uint64_t kStreamBytes = std::uint64_t{4} << 20;

/// A kernel that fills a block; a slow one ends when the device is told so.
bool fill(SimulatedBackend& device, void* block, int pattern, bool is_slow) {
  SimulatedWork work;
  work.address = reinterpret_cast<DeviceAddress>(block);
  work.bytes = kStreamBytes;
  work.until_completed = is_slow;
  work.body = [block, pattern] { std::memset(block, pattern, 64); };
  return device.launch(per_thread_stream(), work).ok();
}

// T1 writes slowly, frees and looks at what it wrote last; T2 allocates as much meanwhile.
TEST(CaseB3, AThreadsOwnStreamIsNotTakenForAnothers) {
  constexpr int kRounds = 1000;
  SimulatedBackend device(
      {.capacity_bytes = std::uint64_t{64} << 20, .memory = SimulatedMemory::real});
  auto pool = std::move(Pool::create(device, {})).value();
  Rendezvous turns;
  int wrong = 0;
  int refused = 0;
  std::thread first([&] {
    for (int i = 0; i < kRounds; ++i) {
      void* block = pool->allocate(kStreamBytes, per_thread_stream()).value();
      if (!fill(device, block, 1, true)) ++refused;
      int seen = 0;
      SimulatedWork look;
      look.address = reinterpret_cast<DeviceAddress>(block);
      look.bytes = kStreamBytes;
      look.body = [&seen, block] { seen = *static_cast<const char*>(block); };
      if (!device.launch(per_thread_stream(), look).ok()) ++refused;
      if (!pool->deallocate(block, per_thread_stream())) ++refused;
      if (i % 3 == 0) pool->maintain();
      turns.meet();  // T2's turn, while this thread's kernel runs
      turns.meet();
      device.complete(per_thread_stream());
      if (seen != 1) ++wrong;
      turns.meet();
    }
  });
  std::thread second([&] {
    for (int i = 0; i < kRounds; ++i) {
      turns.meet();
      void* block = pool->allocate(kStreamBytes, per_thread_stream()).value();
      if (!fill(device, block, 2, false)) ++refused;
      device.advance_ns(1'000'000);
      if (!pool->deallocate(block, per_thread_stream())) ++refused;
      turns.meet();
      turns.meet();
    }
  });
  first.join();
  second.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(device.violation_count(), 0u) << device.last_violation();
}

}  // namespace
}  // namespace gpupool::test
