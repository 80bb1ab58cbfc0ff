// Eight threads on four streams that they share, with record_stream, record_use and frees on other
// streams, on the simulated device: it refuses work that races, and what is written into a block is
// looked for at each later use.
#include "tests/support/shared_streams.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ostream>

#include "gpupool/simulated_backend.h"
#include "tests/stress/stress_time.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

/// A simulated card whose work writes and reads the first and last word of a block.
class SimulatedCard {
 public:
  explicit SimulatedCard(SimulatedBackend& backend) : backend_(backend) {
    for (RawStream& stream : streams_) stream = backend_.create_stream();
  }

  RawStream stream(int number) const { return streams_[static_cast<std::size_t>(number)]; }
  bool fill(RawStream stream, void* pointer, std::uint64_t bytes, std::uint32_t seed) {
    return launch(stream, pointer, bytes, [=] {
      std::memcpy(pointer, &seed, sizeof(seed));
      std::memcpy(last_word(pointer, bytes), &seed, sizeof(seed));
    });
  }
  bool check(RawStream stream, void* pointer, std::uint64_t bytes, std::uint32_t seed) {
    return launch(stream, pointer, bytes, [=, this] {
      const bool is_right = std::memcmp(pointer, &seed, sizeof(seed)) == 0 &&
                            std::memcmp(last_word(pointer, bytes), &seed, sizeof(seed)) == 0;
      if (!is_right) ++wrong_words_;
    });
  }
  bool order(RawStream earlier, RawStream later) {
    const EventHandle event = backend_.create_event().value();
    return backend_.record_event(event, earlier).ok() && backend_.wait_event(later, event).ok() &&
           backend_.destroy_event(event).ok();
  }
  std::uint64_t wrong_words() const { return wrong_words_; }

 private:
  static char* last_word(void* pointer, std::uint64_t bytes) {
    return static_cast<char*>(pointer) + bytes - sizeof(std::uint32_t);
  }

  template <class Body>
  bool launch(RawStream stream, void* pointer, std::uint64_t bytes, Body body) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(pointer);
    work.bytes = bytes;
    // Some of it takes long, so that streams are busy when blocks are freed.
    const unsigned turn = turn_++;
    work.duration_ns = turn % 8 == 0 ? 200'000 : 2'000;
    work.body = body;
    const bool is_done = backend_.launch(stream, work).ok();
    if (turn % 4 == 0) backend_.advance_ns(20'000);
    return is_done;
  }

  SimulatedBackend& backend_;
  std::array<RawStream, SharedStreams<SimulatedCard>::kStreams> streams_;
  std::atomic<unsigned> turn_{0};
  std::atomic<std::uint64_t> wrong_words_{0};
};

struct Kind {
  const char* name;
  Recycling recycling;
  Backing backing;
  friend std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }
};

class SharedStreamsTest : public testing::TestWithParam<Kind> {};

TEST_P(SharedStreamsTest, NobodyGetsWhatAnotherStillUses) {
  SimulatedBackend backend({.capacity_bytes = 512 * kMiB, .memory = SimulatedMemory::real});
  SimulatedCard card(backend);
  PoolOptions options;
  options.capacity = 192 * kMiB;
  options.backing = GetParam().backing;
  options.runtime.recycling = GetParam().recycling;
  std::atomic<std::uint64_t> misuses{0};
  options.misuse_handler = [&](const MisuseReport&) { ++misuses; };
  auto pool = Pool::create(backend, options).value();

  SharedStreams program(*pool, card);
  program.run(stress_time(1000ms, 60s));

  backend.complete_all();
  pool->check_invariants();
  EXPECT_GT(program.served(), 100u);
  EXPECT_GT(program.used_elsewhere(), 10u);
  EXPECT_GT(program.freed_elsewhere(), 10u);
  EXPECT_EQ(program.failures(), 0u) << backend.last_violation();
  EXPECT_EQ(card.wrong_words(), 0u);
  EXPECT_EQ(misuses, 0u);
  EXPECT_EQ(pool->stats().live_blocks, 0u);
  pool->trim(0);
  EXPECT_EQ(pool->stats().held_bytes, 0u);
  pool.reset();
  EXPECT_EQ(backend.violation_count(), 0u) << backend.last_violation();
}

INSTANTIATE_TEST_SUITE_P(All, SharedStreamsTest,
                         testing::Values(Kind{"eager", Recycling::eager, Backing::vmm},
                                         Kind{"off", Recycling::off, Backing::vmm},
                                         Kind{"cudamalloc", Recycling::eager, Backing::cudamalloc}),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace gpupool
