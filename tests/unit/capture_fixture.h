// What the tests of private pools share: captures that are announced by a function, and handles.
#ifndef GPUPOOL_TESTS_UNIT_CAPTURE_FIXTURE_H_
#define GPUPOOL_TESTS_UNIT_CAPTURE_FIXTURE_H_

#include <functional>

#include "tests/unit/pool_fixture.h"

namespace gpupool {

constexpr CapturePoolId kGraph{7, 1};
constexpr CapturePoolId kOther{7, 2};

class CaptureFixture : public PoolFixture {
 protected:
  void SetUp() override { make_pool_of(64 * kMiB); }

  static std::function<bool(RawStream)> only(RawStream raw) {
    return [raw](RawStream asked) { return asked == raw; };
  }
  void begin(RawStream raw, CapturePoolId id = kGraph) {
    ASSERT_TRUE(pool_->begin_allocate_to_pool(id, only(raw)).ok());
    device_.begin_capture(raw);
  }
  SimulatedGraph end(RawStream raw, CapturePoolId id = kGraph) {
    const SimulatedGraph graph = device_.end_capture(raw);
    EXPECT_NE(graph.value, 0u);
    EXPECT_TRUE(pool_->end_allocate_to_pool(id).ok());
    return graph;
  }
  void* allocate_raw(std::uint64_t bytes, RawStream raw) {
    const auto block = pool_->allocate(bytes, raw);
    EXPECT_TRUE(block.ok()) << pool_->last_failure().text();
    return block.ok() ? block.value() : nullptr;
  }
  void free_raw(void* block, RawStream raw) { EXPECT_TRUE(pool_->deallocate(block, raw)); }
  /// Work that ends when the device is waited for.
  bool timed_work(RawStream stream, void* block, std::uint64_t bytes = 1) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(block);
    work.bytes = bytes;
    work.duration_ns = 1'000'000;
    return device_.launch(stream, work).ok();
  }
  /// Whether a request for all there is gets it; what it got is given back.
  bool can_have(std::uint64_t bytes, StreamRef stream) {
    settle();
    const auto block = pool_->allocate(bytes, stream);
    if (!block.ok()) return false;
    EXPECT_TRUE(pool_->deallocate(block.value(), stream));
    settle();
    return true;
  }
  bool is_in(void* block, void* around, std::uint64_t bytes) {
    return block >= around && block < at(around, bytes);
  }
  std::uint64_t pinned() { return pool_->stats().pinned_bytes; }
};

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_UNIT_CAPTURE_FIXTURE_H_
