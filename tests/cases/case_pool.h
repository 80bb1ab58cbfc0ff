// What the cases share: a simulated card whose memory is addresses alone, a pool on it, and one
// stream. At the end nothing may be left on the card, and it must have had nothing to refuse.
#ifndef GPUPOOL_TESTS_CASES_CASE_POOL_H_
#define GPUPOOL_TESTS_CASES_CASE_POOL_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool::test {

constexpr std::uint64_t to_pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage; }

class CasePool {
 public:
  CasePool(std::uint64_t card_bytes, PoolOptions options)
      : device_({.capacity_bytes = card_bytes}) {
    auto created = Pool::create(device_, std::move(options));
    if (!created.ok()) {
      ADD_FAILURE() << created.error().message;
      return;
    }
    pool_ = std::move(created).value();
    raw_ = device_.create_stream();
    stream_ = pool_->adopt_stream(raw_).value();
  }
  CasePool(std::uint64_t card_bytes, Recycling recycling)
      : CasePool(card_bytes, with_recycling(recycling)) {}
  ~CasePool() {
    device_.complete_all();
    if (pool_ != nullptr) pool_->check_invariants();
    pool_.reset();
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
    EXPECT_EQ(device_.object_count(), 0u);
  }
  CasePool(const CasePool&) = delete;
  CasePool& operator=(const CasePool&) = delete;

  static PoolOptions with_recycling(Recycling recycling) {
    PoolOptions options;
    options.runtime.recycling = recycling;
    return options;
  }

  /// False: it did not start, which has been reported.
  bool is_started() const { return pool_ != nullptr; }
  Pool& pool() { return *pool_; }
  SimulatedBackend& device() { return device_; }
  RawStream raw() const { return raw_; }
  StreamRef stream() const { return stream_; }
  StatsV1 stats() const { return pool_->stats(); }
  std::uint64_t held_bytes() const { return device_.held_bytes(); }
  std::string why() const { return pool_->last_failure().text(); }

  /// nullptr where it is refused.
  void* try_allocate(std::uint64_t bytes) {
    const auto block = pool_->allocate(bytes, stream_);
    return block.ok() ? block.value() : nullptr;
  }
  void* allocate(std::uint64_t bytes) {
    void* const block = try_allocate(bytes);
    EXPECT_NE(block, nullptr) << why();
    return block;
  }
  void free(void* block) { EXPECT_TRUE(pool_->deallocate(block, stream_)); }
  /// Work on `block` that runs until complete_all, or for `duration_ns`.
  void work(void* block, std::uint64_t bytes, std::uint64_t duration_ns = 0) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(block);
    work.bytes = bytes;
    work.duration_ns = duration_ns;
    work.until_completed = duration_ns == 0;
    EXPECT_TRUE(device_.launch(raw_, std::move(work)).ok()) << device_.last_violation();
  }

 private:
  SimulatedBackend device_;
  std::unique_ptr<Pool> pool_;
  RawStream raw_ = nullptr;
  StreamRef stream_;
};

/// A case that has to come out right under each policy that it is run with.
class PolicyTest : public testing::TestWithParam<Recycling> {};

inline std::string policy_name(const testing::TestParamInfo<Recycling>& policy) {
  return to_string(policy.param);
}

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_CASES_CASE_POOL_H_
