// The pool as a memory resource: what each version of CCCL asks of one, checked by the compiler,
// and what its calls do, on the simulated device.
#include "gpupool/memory_resource.h"

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

// The names of CCCL 3.1 and later, as its concepts of the same names put them.
template <class T>
concept LaterSynchronousResource = std::equality_comparable<T> && std::copyable<T> &&
    requires(T resource, void* pointer, std::size_t bytes, std::size_t alignment) {
  { resource.allocate_sync(bytes, alignment) } -> std::same_as<void*>;
  { resource.deallocate_sync(pointer, bytes, alignment) } -> std::same_as<void>;
  requires noexcept(resource.deallocate_sync(pointer, bytes, alignment));
};
template <class T>
concept LaterResource = LaterSynchronousResource<T> &&
    requires(T resource, cuda::stream_ref stream, void* pointer, std::size_t bytes,
             std::size_t alignment) {
  { resource.allocate(stream, bytes, alignment) } -> std::same_as<void*>;
  { resource.deallocate(stream, pointer, bytes, alignment) } -> std::same_as<void>;
  requires noexcept(resource.deallocate(stream, pointer, bytes, alignment));
};
template <class T>
concept DeviceAccessible = requires(const T& resource) {
  get_property(resource, cuda::mr::device_accessible{});
};

static_assert(LaterResource<MemoryResource>);
static_assert(DeviceAccessible<MemoryResource>);
static_assert(std::is_base_of_v<std::bad_alloc, OutOfMemory>);

#if CCCL_MAJOR_VERSION == 3 && CCCL_MINOR_VERSION == 0
static_assert(cuda::mr::resource<MemoryResource>);
static_assert(cuda::mr::async_resource<MemoryResource>);
static_assert(cuda::mr::resource_with<MemoryResource, cuda::mr::device_accessible>);
static_assert(cuda::mr::async_resource_with<MemoryResource, cuda::mr::device_accessible>);
static_assert(!cuda::mr::async_resource_with<MemoryResource, cuda::mr::host_accessible>);
#else
static_assert(cuda::mr::synchronous_resource<MemoryResource>);
static_assert(cuda::mr::resource<MemoryResource>);
static_assert(cuda::mr::resource_with<MemoryResource, cuda::mr::device_accessible>);
static_assert(!cuda::mr::resource_with<MemoryResource, cuda::mr::host_accessible>);
#endif

class MemoryResourceTest : public PoolFixture {
 protected:
  MemoryResource resource() { return MemoryResource(*pool_); }
  static cuda::stream_ref legacy() { return cuda::stream_ref{RawStream{}}; }
};

TEST_F(MemoryResourceTest, BothSetsOfNamesServeTheSameBlocks) {
  MemoryResource mr = resource();
  const cuda::stream_ref stream{raw_a_};
  void* const later = mr.allocate(stream, 5 * kMiB, 256);
  ASSERT_NE(later, nullptr);
  mr.deallocate_async(later, 5 * kMiB, 256, stream);
  void* const earlier = mr.allocate_async(5 * kMiB, 256, stream);
  EXPECT_EQ(earlier, later);
  mr.deallocate(stream, earlier, 5 * kMiB, 256);
  EXPECT_EQ(pool_->stats().live_blocks, 0u);
  EXPECT_EQ(pool_->stats().requests, 2u);
  EXPECT_TRUE(misuses_.empty());
}

TEST_F(MemoryResourceTest, CopiesAreEqualAndAnotherPoolIsNot) {
  const MemoryResource mr = resource();
  const MemoryResource copy = mr;
  EXPECT_TRUE(mr == copy);
  auto other = Pool::create(device_, {}).value();
  EXPECT_TRUE(mr != MemoryResource(*other));
  EXPECT_EQ(&copy.pool(), pool_.get());
}

TEST_F(MemoryResourceTest, WithAStreamNothingIsWaitedFor) {
  MemoryResource mr = resource();
  const cuda::stream_ref stream{raw_a_};
  void* const block = mr.allocate(stream, kMiB);
  ASSERT_TRUE(work(raw_a_, block));
  mr.deallocate(stream, block, kMiB);
  // Its own stream gets it at once, although its work runs; another one does not.
  EXPECT_EQ(mr.allocate(stream, kMiB), block);
  EXPECT_FALSE(device_.is_idle(raw_a_));
  mr.deallocate(stream, block, kMiB);
  const cuda::stream_ref other{raw_b_};
  void* const another = mr.allocate(other, kMiB);
  EXPECT_NE(another, block);
  mr.deallocate(other, another, kMiB);
}

TEST_F(MemoryResourceTest, WithoutAStreamABlockIsFreeOfWorkForWhoeverUsesIt) {
  MemoryResource mr = resource();
  // The legacy stream frees a block that it still works on: its own stream might have it at once,
  // any other must not.
  void* const used = mr.allocate(legacy(), kMiB);
  SimulatedWork slow;
  slow.address = reinterpret_cast<DeviceAddress>(used);
  slow.bytes = kMiB;
  slow.duration_ns = 5'000'000;
  ASSERT_TRUE(device_.launch(nullptr, slow).ok());
  mr.deallocate(legacy(), used, kMiB);
  void* const block = mr.allocate(kMiB, 512);
  EXPECT_EQ(block, used);
  EXPECT_TRUE(device_.is_idle(nullptr));
  // Work of an unordered stream: the device refuses it where the first is not complete.
  EXPECT_TRUE(work(raw_b_, block, kMiB)) << device_.last_violation();
  device_.complete(raw_b_);
  mr.deallocate(block, kMiB, 512);
  EXPECT_EQ(pool_->stats().live_blocks, 0u);
}

TEST_F(MemoryResourceTest, WithoutAStreamTheNamesOfBothVersionsAreOne) {
  MemoryResource mr = resource();
  void* const block = mr.allocate_sync(100 * kKiB, 4096);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 4096, 0u);
  mr.deallocate(block, 100 * kKiB, 4096);
  void* const again = mr.allocate(100 * kKiB, 4096);
  EXPECT_EQ(again, block);
  mr.deallocate_sync(again, 100 * kKiB, 4096);
  EXPECT_TRUE(misuses_.empty());
}

TEST_F(MemoryResourceTest, NotWhileALegacyEventWouldInvalidateACapture) {
  MemoryResource mr = resource();
  device_.begin_capture(raw_a_);
  EXPECT_THROW(static_cast<void>(mr.allocate_sync(kMiB, 512)), OutOfMemory);
  device_.end_capture(raw_a_);
  EXPECT_EQ(pool_->stats().live_blocks, 0u);
  void* const block = mr.allocate_sync(kMiB, 512);
  mr.deallocate_sync(block, kMiB, 512);
}

TEST_F(MemoryResourceTest, WhatCannotBeServedIsABadAllocThatSaysWhy) {
  make_pool_of(64 * kMiB);
  MemoryResource mr = resource();
  try {
    static_cast<void>(mr.allocate(cuda::stream_ref{raw_a_}, 65 * kMiB));
    FAIL() << "served";
  } catch (const std::bad_alloc& error) {
    EXPECT_NE(std::string(error.what()).find("64.00 MiB"), std::string::npos) << error.what();
  }
  EXPECT_THROW(static_cast<void>(mr.allocate_sync(65 * kMiB, 512)), OutOfMemory);
  EXPECT_THROW(static_cast<void>(mr.allocate(cuda::stream_ref{raw_a_}, 512, 3)),
               std::invalid_argument);
  EXPECT_EQ(mr.allocate(cuda::stream_ref{raw_a_}, 0), nullptr);
  EXPECT_EQ(mr.allocate_sync(0, 512), nullptr);
  mr.deallocate_sync(nullptr, 0, 512);
}

TEST_F(MemoryResourceTest, AFreeWithAnotherSizeIsCountedAndTaken) {
  MemoryResource mr = resource();
  void* const block = mr.allocate(cuda::stream_ref{raw_a_}, kMiB);
  mr.deallocate(cuda::stream_ref{raw_a_}, block, 2 * kMiB);
  EXPECT_EQ(count(Misuse::wrong_size), 1u);
  EXPECT_EQ(pool_->stats().live_blocks, 0u);
  mr.deallocate(cuda::stream_ref{raw_a_}, block, kMiB);
  EXPECT_EQ(count(Misuse::double_free), 1u);
}

}  // namespace
}  // namespace gpupool
