#include <atomic>
#include <functional>
#include <utility>

#include "tests/gpu/replay/block_work.h"

namespace gpupool::gpu_tests {
namespace {

constexpr std::uint64_t kLaunchNs = 4000;
constexpr std::uint64_t kWorkNs = 2000;
constexpr std::uint64_t kBytesPerNs = 4000;
constexpr std::uint64_t kQueueLength = 1024;
constexpr std::uint64_t kWordBytes = sizeof(std::uint32_t);
constexpr std::uint64_t kUnitBytes = 4096;
constexpr std::uint64_t kSmallBytes = 16 * kUnitBytes;
constexpr std::uint64_t kQueueStepNs = 10'000;  // how far apart the host looks at a full queue

/// Words are written and compared by whichever thread finds the work over, under the device's lock.
class WorkOnSimulatedDevice final : public BlockWork {
 public:
  WorkOnSimulatedDevice(SimulatedBackend& device, SimulatedMemory memory,
                        const std::vector<RawStream>& streams)
      : device_(device), has_data_(memory == SimulatedMemory::real), queues_(streams.size()) {
    for (std::size_t i = 0; i < streams.size(); ++i) queues_[i].stream = streams[i];
  }
  ~WorkOnSimulatedDevice() override { device_.complete_all(); }

  Result<void, Status> fill(std::uint16_t stream, const Pattern& pattern) override {
    return launch(stream, pattern, [pattern] { write(pattern); });
  }
  Result<void, Status> check(std::uint16_t stream, const Pattern& pattern) override {
    return launch(stream, pattern, [this, pattern] { compare(pattern); });
  }
  Result<void, Status> stall(std::uint16_t stream, std::uint64_t ns) override {
    SimulatedWork work;
    work.duration_ns = ns;
    return give(stream, std::move(work), {});
  }
  Result<void, Status> wait_for_all() override {
    device_.complete_all();
    return {};
  }
  Result<Mismatches, Status> mismatches() override {
    device_.complete_all();
    return mismatches_;
  }

 private:
  struct Queue {
    RawStream stream = nullptr;
    std::uint64_t given = 0;
    std::atomic<std::uint64_t> done{0};
  };

  /// Calls `body` with the index of each word of a small block, and of one in each unit of 4 KiB,
  /// and the last, of a large one: the host is a thousand times slower than a card.
  template <class Body>
  static void for_words(const Pattern& pattern, Body&& body) {
    const std::uint64_t words = pattern.words();
    const std::uint64_t step = pattern.bytes <= kSmallBytes ? 1 : kUnitBytes / kWordBytes;
    for (std::uint64_t i = 0; i < words; i += step) body(i);
    if (step > 1) body(words - 1);
  }

  static void write(const Pattern& pattern) {
    auto* const words = reinterpret_cast<std::uint32_t*>(pattern.address);
    for_words(pattern, [&](std::uint64_t i) { words[i] = pattern.word(i); });
  }

  void compare(const Pattern& pattern) {
    const auto* const words = reinterpret_cast<const std::uint32_t*>(pattern.address);
    for_words(pattern, [&](std::uint64_t i) {
      if (words[i] == pattern.word(i)) return;
      if (mismatches_.words++ == 0) {
        mismatches_.first_address = pattern.address + i * kWordBytes;
        mismatches_.first_expected = pattern.word(i);
        mismatches_.first_found = words[i];
      }
    });
  }

  Result<void, Status> launch(std::uint16_t stream, const Pattern& pattern,
                              std::function<void()> body) {
    SimulatedWork work;
    work.address = pattern.address;
    work.bytes = pattern.bytes;
    work.duration_ns = kWorkNs + pattern.bytes / kBytesPerNs;
    return give(stream, std::move(work), has_data_ ? std::move(body) : nullptr);
  }

  Result<void, Status> give(std::uint16_t stream, SimulatedWork work, std::function<void()> body) {
    Queue& queue = queues_[stream];
    device_.advance_ns(kLaunchNs);
    while (queue.given - queue.done.load() >= kQueueLength) device_.advance_ns(kQueueStepNs);
    work.body = [&queue, body = std::move(body)] {
      if (body) body();
      queue.done.fetch_add(1);
    };
    const auto launched = device_.launch(queue.stream, std::move(work));
    if (!launched.ok()) {
      return Status{launched.error(),
                    "the simulated device refused work: " + device_.last_violation()};
    }
    ++queue.given;
    return {};
  }

  SimulatedBackend& device_;
  const bool has_data_;
  std::vector<Queue> queues_;
  Mismatches mismatches_;
};

}  // namespace

std::unique_ptr<BlockWork> make_simulated_work(SimulatedBackend& device, SimulatedMemory memory,
                                               const std::vector<RawStream>& streams) {
  return std::make_unique<WorkOnSimulatedDevice>(device, memory, streams);
}

}  // namespace gpupool::gpu_tests
