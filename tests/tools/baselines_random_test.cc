// Random operations on every system of the comparison, against a model. The device judges streams:
// each new block is written at once by work of its stream, and work on memory that another stream
// still uses is refused and counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/baselines/catalog.h"
#include "bench/baselines/growth.h"
#include "bench/baselines/metered_backend.h"
#include "gpupool/faulty_backend.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool::baselines {
namespace {

constexpr std::size_t kStreamCount = 3;

struct Block {
  std::uint64_t bytes = 0;
  StreamIndex stream = 0;  // whose work used it
};

SimulatedDeviceOptions device_options(std::uint64_t capacity_bytes) {
  SimulatedDeviceOptions options;
  options.capacity_bytes = capacity_bytes;
  return options;
}

/// A device, one system on it, and what must be true of both.
class Trial {
 public:
  Trial(const CatalogEntry& entry, std::uint64_t seed, std::uint64_t capacity_bytes)
      : entry_(entry), random_(seed), device_(device_options(capacity_bytes)) {
    for (std::size_t i = 0; i < kStreamCount; ++i) streams_.push_back(device_.create_stream());
    auto created = entry.create(meter_, streams_);
    EXPECT_TRUE(created.ok());
    if (created.ok()) system_ = std::move(created).value();
  }

  FaultyBackend& faults() { return faulty_; }
  std::uint64_t failed() const { return failed_; }

  void step() {
    switch (random_() % 16) {
      case 0: device_.advance_ns(random_() % 200'000); break;
      case 1: system_->pass_time(1'000'000); break;
      case 2: bad_free(); break;
      case 3: free_on_another_stream(); break;
      default:
        if (random_() % 5 < 3) {
          allocate();
        } else {
          free();
        }
    }
    check();
  }

  /// Frees everything; what is left is the system's own affair.
  void end() {
    while (!blocks_.empty()) free();
    system_->empty_caches();
    check();
    system_.reset();
    EXPECT_EQ(device_.held_bytes(), 0U);
    EXPECT_EQ(device_.object_count(), 0U);
    EXPECT_EQ(device_.violation_count(), 0U) << device_.last_violation();
  }

 private:
  std::uint64_t random_size() {
    switch (random_() % 5) {
      case 0: return random_() % 2048;
      case 1: return (random_() % 64 + 1) * 4096;
      case 2: return std::uint64_t{1} << (9 + random_() % 14);
      case 3: return random_() % (4 * kMiB);
      default: return random_() % 200'000;
    }
  }

  void allocate() {
    const std::uint64_t bytes = random_size();
    const auto stream = static_cast<StreamIndex>(random_() % kStreamCount);
    const Result<void*> block = system_->allocate(bytes, stream);
    if (!block.ok()) {
      ++failed_;
      return;
    }
    if (bytes == 0) {
      EXPECT_EQ(block.value(), nullptr);
      return;
    }
    const DeviceAddress address = to_address(block.value());
    EXPECT_EQ(address % kGranuleBytes, 0U);
    const auto after = blocks_.lower_bound(address);
    EXPECT_TRUE(after == blocks_.end() || address + bytes <= after->first);
    if (after != blocks_.begin()) {
      const auto& [before, other] = *std::prev(after);
      EXPECT_LE(before + other.bytes, address);
    }
    blocks_[address] = {bytes, stream};
    SimulatedWork work;
    work.address = address;
    work.bytes = bytes;
    work.duration_ns = random_() % 1'000'000 + 1;
    EXPECT_TRUE(device_.launch(streams_[stream], work).ok()) << device_.last_violation();
  }

  std::map<DeviceAddress, Block>::iterator random_block() {
    return std::next(blocks_.begin(), static_cast<std::ptrdiff_t>(random_() % blocks_.size()));
  }

  void free() {
    if (blocks_.empty()) return;
    const auto block = random_block();
    EXPECT_TRUE(system_->deallocate(to_pointer(block->first), block->second.stream));
    blocks_.erase(block);
  }

  /// As a program must: the stream that frees is made to wait for the one that used the block.
  void free_on_another_stream() {
    if (blocks_.empty()) return;
    const auto block = random_block();
    const auto stream = static_cast<StreamIndex>(random_() % kStreamCount);
    const EventHandle event = device_.create_event().value();
    EXPECT_TRUE(device_.record_event(event, streams_[block->second.stream]).ok());
    EXPECT_TRUE(device_.wait_event(streams_[stream], event).ok());
    EXPECT_TRUE(device_.destroy_event(event).ok());
    EXPECT_TRUE(system_->deallocate(to_pointer(block->first), stream));
    blocks_.erase(block);
  }

  /// Inside a block, or nowhere at all.
  void bad_free() {
    if (blocks_.empty()) return;
    const auto block = random_block();
    const std::uint64_t offset = random_() % 2 == 0 ? kGranuleBytes : 1;
    const DeviceAddress wrong = block->first + offset;
    if (blocks_.count(wrong) != 0) return;
    EXPECT_FALSE(system_->deallocate(to_pointer(wrong), block->second.stream));
    EXPECT_TRUE(system_->deallocate(nullptr, 0));
  }

  void check() {
    std::uint64_t live_bytes = 0;
    for (const auto& [address, block] : blocks_) live_bytes += block.bytes;
    EXPECT_LE(live_bytes, device_.held_bytes());
    EXPECT_EQ(system_->find_fault(), "") << entry_.name;
    EXPECT_GE(meter_.peak_held_bytes(), device_.held_bytes());
  }

  const CatalogEntry& entry_;
  std::mt19937_64 random_;
  SimulatedBackend device_;
  FaultyBackend faulty_{device_};
  MeteredBackend meter_{faulty_};
  std::vector<RawStream> streams_;
  std::unique_ptr<AllocationSystem> system_;
  std::map<DeviceAddress, Block> blocks_;
  std::uint64_t failed_ = 0;
};

std::uint64_t first_seed() {
  const char* const text = std::getenv("GPUPOOL_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

class Baselines : public testing::TestWithParam<const CatalogEntry*> {
 protected:
  /// Lists of operations on a device of `capacity_bytes`; `prepare` is called before each.
  template <class Prepare>
  std::uint64_t run_lists(std::uint64_t capacity_bytes, const Prepare& prepare) {
    std::uint64_t failed = 0;
    for (std::uint64_t seed = first_seed(); seed < first_seed() + 20; ++seed) {
      Trial trial(*GetParam(), seed, capacity_bytes);
      prepare(trial.faults());
      for (int i = 0; i < 500 && !HasFailure(); ++i) trial.step();
      trial.faults().clear();
      trial.end();
      failed += trial.failed();
      if (HasFailure()) {
        ADD_FAILURE() << GetParam()->name << ", GPUPOOL_TEST_SEED=" << seed;
        break;
      }
    }
    return failed;
  }
};

TEST_P(Baselines, ServeEverythingWhereThereIsRoom) {
  EXPECT_EQ(run_lists(8192 * kMiB, [](FaultyBackend&) {}), 0U);
}

TEST_P(Baselines, SurviveAFullDevice) {
  EXPECT_GT(run_lists(40 * kMiB, [](FaultyBackend&) {}), 0U);
}

TEST_P(Baselines, SurviveADriverThatFails) {
  const bool keeps_memory = GetParam()->name != "driver" && !GetParam()->is_ours;
  const auto prepare = [keeps_memory](FaultyBackend& faults) {
    // A pool that cannot give a segment back still has it.
    if (keeps_memory) faults.fail_at_random(BackendCall::deallocate, 0.3, Error::backend_failure);
    faults.fail_at_random(BackendCall::allocate, 0.5, Error::backend_failure);
    faults.fail_at_random(BackendCall::create, 0.5, Error::backend_failure);
  };
  EXPECT_GT(run_lists(64 * kMiB, prepare), 0U);
}

std::vector<const CatalogEntry*> all_systems() {
  std::vector<const CatalogEntry*> entries;
  for (const CatalogEntry& entry : catalog()) entries.push_back(&entry);
  return entries;
}

std::string test_name(const testing::TestParamInfo<const CatalogEntry*>& entry) {
  std::string name(entry.param->name);
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
}

INSTANTIATE_TEST_SUITE_P(Every, Baselines, testing::ValuesIn(all_systems()), test_name);

}  // namespace
}  // namespace gpupool::baselines
