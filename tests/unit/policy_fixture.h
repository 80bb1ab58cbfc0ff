// What the tests of cross-stream policies share: pools by policy, orders of streams, and how often
// memory went from one stream to another.
#ifndef GPUPOOL_TESTS_UNIT_POLICY_FIXTURE_H_
#define GPUPOOL_TESTS_UNIT_POLICY_FIXTURE_H_

#include "tests/unit/pool_fixture.h"

namespace gpupool {

class PolicyFixture : public PoolFixture {
 protected:
  void make_pool_with(CrossStreamPolicy policy, std::uint64_t capacity = 64 * kMiB,
                      Recycling recycling = Recycling::eager) {
    PoolOptions options;
    options.capacity = capacity;
    options.runtime.policy = policy;
    options.runtime.recycling = recycling;
    make_pool(options);
  }
  /// As a program orders two streams.
  void order(RawStream earlier, RawStream later) {
    const EventHandle event = device_.create_event().value();
    EXPECT_TRUE(device_.record_event(event, earlier).ok());
    EXPECT_TRUE(device_.wait_event(later, event).ok());
    EXPECT_TRUE(device_.destroy_event(event).ok());
  }
  void depend(RawStream source, StreamRef from, RawStream destination, StreamRef to) {
    order(source, destination);
    EXPECT_TRUE(pool_->note_dependency(from, to));
  }
  std::uint64_t reuses(CrossStreamReuse how) {
    return pool_->stats().cross_stream_reuse[static_cast<std::size_t>(how)];
  }
  bool is_refused(std::uint64_t bytes, StreamRef stream) {
    const auto block = pool_->allocate(bytes, stream);
    if (!block.ok()) return true;
    EXPECT_TRUE(pool_->deallocate(block.value(), stream));
    return false;
  }
};

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_UNIT_POLICY_FIXTURE_H_
