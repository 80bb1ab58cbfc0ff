// AllocationClass::contiguous in both of its kinds, and what find_export says of a block.
#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolContiguousTest : public PoolFixture {
 protected:
  void make_pool_with(ContiguousBacking kind, Backing backing = Backing::vmm) {
    PoolOptions options;
    options.contiguous = kind;
    options.backing = backing;
    make_pool(options);
  }
  Result<void*> try_contiguous(std::uint64_t bytes, std::size_t alignment = 512) {
    AllocationRequest request;
    request.bytes = bytes;
    request.alignment = alignment;
    request.allocation_class = AllocationClass::contiguous;
    return pool_->allocate(request, a_);
  }
  void* contiguous(std::uint64_t bytes, std::size_t alignment = 512) {
    const auto block = try_contiguous(bytes, alignment);
    EXPECT_TRUE(block.ok()) << pool_->last_failure().text();
    return block.value();
  }
};

TEST_F(PoolContiguousTest, AHandleIsOneThatOtherProcessesTake) {
  make_pool_with(ContiguousBacking::handle);
  void* const block = contiguous(3 * kMiB);
  const auto address = reinterpret_cast<DeviceAddress>(block);
  EXPECT_TRUE(device_.export_handle(address).ok());
  EXPECT_TRUE(device_.export_handle(address + 3 * kMiB - 1).ok());
  EXPECT_FALSE(device_.export_legacy(address).ok());
  const auto info = pool_->find_export(at(block, kMiB));
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info.value().kind, ExportInfo::Kind::handle);
  EXPECT_EQ(info.value().base, address);
  EXPECT_EQ(info.value().bytes, 4 * kMiB);  // whole pages
  EXPECT_EQ(info.value().offset, kMiB);
  EXPECT_EQ(pool_->find_size(block).value(), 3 * kMiB);
  EXPECT_EQ(pool_->stats().held_bytes, device_.held_bytes());
  EXPECT_EQ(pool_->stats().fallback_bytes, 4 * kMiB);
  // It is usable, and goes back whole once its work is done.
  ASSERT_TRUE(work(raw_a_, block, 3 * kMiB));
  free(block);
  pool_->maintain();
  EXPECT_EQ(device_.held_bytes(), 4 * kMiB);
  device_.complete(raw_a_);
  pool_->maintain();
  EXPECT_EQ(device_.held_bytes(), 0u);
}

TEST_F(PoolContiguousTest, AnAlignmentOfAPageIsNoMoreInAHandle) {
  make_pool_with(ContiguousBacking::handle);
  void* const block = contiguous(kMiB, kMaxAlignment);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % kMaxAlignment, 0u);
  EXPECT_EQ(pool_->stats().fallback_bytes, 2 * kMiB);
  free(block);
}

TEST_F(PoolContiguousTest, EachCallOfAHandleMayFail) {
  for (const BackendCall call : {BackendCall::reserve_address, BackendCall::create,
                                 BackendCall::map, BackendCall::set_access}) {
    make_pool_with(ContiguousBacking::handle);
    backend_.fail_nth(call, 1, Error::backend_failure);
    EXPECT_FALSE(try_contiguous(3 * kMiB).ok()) << to_string(call);
    EXPECT_EQ(device_.held_bytes(), 0u) << to_string(call);
    EXPECT_EQ(pool_->stats().held_bytes, 0u) << to_string(call);
    EXPECT_EQ(device_.object_count(), 0u) << to_string(call);
    backend_.clear();
    free(contiguous(3 * kMiB));
  }
}

TEST_F(PoolContiguousTest, WhatTheDriverDoesNotTakeBackIsTriedAgainFromThere) {
  for (const BackendCall call : {BackendCall::unmap, BackendCall::release}) {
    make_pool_with(ContiguousBacking::handle);
    free(contiguous(3 * kMiB));
    backend_.fail_nth(call, 1, Error::backend_failure);
    pool_->maintain();
    EXPECT_EQ(device_.held_bytes(), 4 * kMiB) << to_string(call);
    EXPECT_EQ(pool_->stats().held_bytes, 4 * kMiB) << to_string(call);
    backend_.clear();
    pool_->maintain();
    EXPECT_EQ(device_.held_bytes(), 0u) << to_string(call);
    EXPECT_EQ(pool_->stats().held_bytes, 0u) << to_string(call);
  }
}

TEST_F(PoolContiguousTest, ACudaMallocIsWhatLegacyIpcTakes) {
  make_pool_with(ContiguousBacking::cudamalloc);
  void* const block = contiguous(100 * kKiB);
  const auto address = reinterpret_cast<DeviceAddress>(block);
  EXPECT_EQ(device_.export_legacy(address + 5).value(), address);
  const auto info = pool_->find_export(block);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info.value().kind, ExportInfo::Kind::cudamalloc);
  EXPECT_EQ(info.value().base, address);
  EXPECT_EQ(info.value().offset, 0u);
  free(block);
}

TEST_F(PoolContiguousTest, OfAFreedBlockNothingCanBeExported) {
  make_pool_with(ContiguousBacking::cudamalloc, Backing::cudamalloc);
  void* const block = allocate(5 * kMiB);
  ASSERT_TRUE(pool_->find_export(block).ok());
  free(block);
  const auto info = pool_->find_export(block);
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.error().code, Error::invalid_argument);
  EXPECT_FALSE(pool_->find_export(this).ok());
  EXPECT_FALSE(pool_->find_export(nullptr).ok());
}

TEST_F(PoolContiguousTest, ADeviceWithoutSuchHandlesSaysSoAtTheStart) {
  SimulatedBackend plain({.capacity_bytes = 64 * kMiB, .supports_vmm = false});
  PoolOptions options;
  options.backing = Backing::cudamalloc;
  options.contiguous = ContiguousBacking::handle;
  const auto pool = Pool::create(plain, options);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().code, Error::not_supported);
  EXPECT_NE(pool.error().message.find("contiguous"), std::string::npos) << pool.error().message;
}

}  // namespace
}  // namespace gpupool
