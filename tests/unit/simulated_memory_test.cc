#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

SimulatedDeviceOptions small_card(SimulatedMemory memory = SimulatedMemory::address_only) {
  SimulatedDeviceOptions options;
  options.capacity_bytes = 64 * kMiB;
  options.memory = memory;
  return options;
}

/// A page that is mapped and accessible, in a range of its own of `pages` pages.
DeviceAddress map_pages(SimulatedBackend& device, std::uint64_t pages) {
  const DeviceAddress address = device.reserve_address(pages * kPage, kPage).value();
  for (std::uint64_t i = 0; i < pages; ++i) {
    const PhysicalHandle handle = device.create(kPage).value();
    EXPECT_TRUE(device.map(address + i * kPage, kPage, handle));
    EXPECT_TRUE(device.release(handle));  // the mapping keeps it
  }
  EXPECT_TRUE(device.set_access(address, pages * kPage));
  return address;
}

char* bytes_at(DeviceAddress address) { return reinterpret_cast<char*>(address); }

TEST(SimulatedMemoryTest, CapacityIsTheEnd) {
  SimulatedBackend device(small_card());
  EXPECT_TRUE(device.create(62 * kMiB));
  EXPECT_EQ(device.create(4 * kMiB).error(), Error::out_of_memory);
  EXPECT_EQ(device.allocate(2 * kMiB + 1).error(), Error::out_of_memory);
  EXPECT_EQ(device.allocate(~std::uint64_t{0}).error(), Error::out_of_memory);
  EXPECT_TRUE(device.allocate(2 * kMiB));
  EXPECT_EQ(device.allocate(1).error(), Error::out_of_memory);
  EXPECT_EQ(device.held_bytes(), 64 * kMiB);
  EXPECT_EQ(device.memory_info().value().free_bytes, 0u);
}

TEST(SimulatedMemoryTest, OthersTakeMemory) {
  SimulatedBackend device(small_card());
  const PhysicalHandle handle = device.create(10 * kMiB).value();
  EXPECT_EQ(device.set_taken_by_others(55 * kMiB).error(), Error::out_of_memory);
  ASSERT_TRUE(device.set_taken_by_others(50 * kMiB));
  EXPECT_EQ(device.memory_info().value().free_bytes, 4 * kMiB);
  EXPECT_EQ(device.memory_info().value().total_bytes, 64 * kMiB);
  EXPECT_EQ(device.held_bytes(), 10 * kMiB);
  EXPECT_EQ(device.create(6 * kMiB).error(), Error::out_of_memory);
  ASSERT_TRUE(device.release(handle));
  EXPECT_TRUE(device.create(14 * kMiB));
  ASSERT_TRUE(device.set_taken_by_others(0));
  EXPECT_EQ(device.memory_info().value().free_bytes, 50 * kMiB);
}

TEST(SimulatedMemoryTest, GranularityIsAnOption) {
  SimulatedDeviceOptions options = small_card();
  options.granularity_bytes = 64 << 10;
  SimulatedBackend device(options);
  EXPECT_EQ(device.granularity_bytes(), 64u << 10);
  EXPECT_TRUE(device.create(192 << 10));
  EXPECT_EQ(device.create(96 << 10).error(), Error::invalid_argument);
  EXPECT_EQ(device.reserve_address(96 << 10, 1).error(), Error::invalid_argument);
}

TEST(SimulatedMemoryTest, RangesAreHighAlignedAndDisjoint) {
  SimulatedBackend device;
  const std::uint64_t tebi = std::uint64_t{1} << 40;
  std::vector<DeviceAddress> ranges;
  for (int i = 0; i < 4; ++i) {
    const DeviceAddress address = device.reserve_address(2 * tebi, kPage).value();
    EXPECT_GE(address, 16 * tebi);
    EXPECT_EQ(address % kPage, 0u);
    for (DeviceAddress other : ranges) {
      EXPECT_TRUE(address + 2 * tebi <= other || other + 2 * tebi <= address);
    }
    ranges.push_back(address);
  }
  ASSERT_TRUE(device.free_address(ranges[1], 2 * tebi));
  EXPECT_EQ(device.reserve_address(2 * tebi, kPage).value(), ranges[1]);
}

TEST(SimulatedMemoryTest, DevicesHaveAddressesOfTheirOwn) {
  std::vector<DeviceAddress> plain;
  std::vector<DeviceAddress> ranges;
  for (int ordinal = 0; ordinal < 8; ++ordinal) {
    SimulatedDeviceOptions options;
    options.ordinal = ordinal;
    SimulatedBackend device(options);
    EXPECT_EQ(device.info().ordinal, ordinal);
    const DeviceAddress range = device.reserve_address(std::uint64_t{1} << 42, kPage).value();
    const DeviceAddress address = device.allocate(kPage).value();
    EXPECT_GT(address, range);
    if (!ranges.empty()) {
      EXPECT_GT(range, plain.back());
    }
    ranges.push_back(range);
    plain.push_back(address);
  }
}

TEST(SimulatedMemoryTest, PlainAllocationsAreAlignedAndCountedInUnits) {
  for (const auto memory : {SimulatedMemory::address_only, SimulatedMemory::real}) {
    SimulatedBackend device(small_card(memory));
    const DeviceAddress small = device.allocate(1).value();
    EXPECT_EQ(device.held_bytes(), 512u);
    const DeviceAddress middle = device.allocate(513).value();
    EXPECT_EQ(device.held_bytes(), 1536u);
    const DeviceAddress large = device.allocate(kPage + 1).value();
    EXPECT_EQ(device.held_bytes(), 1536u + kPage + 512u);
    EXPECT_EQ(small % 512, 0u);
    EXPECT_EQ(middle % 512, 0u);
    EXPECT_EQ(large % kPage, 0u);
    for (DeviceAddress address : {small, middle, large}) EXPECT_TRUE(device.deallocate(address));
    EXPECT_EQ(device.held_bytes(), 0u);
    EXPECT_EQ(device.deallocate(large).error(), Error::invalid_argument);
  }
}

TEST(SimulatedMemoryTest, WithoutVmmOnlyPlainAllocations) {
  SimulatedDeviceOptions options = small_card();
  options.supports_vmm = false;
  SimulatedBackend device(options);
  EXPECT_FALSE(device.info().supports_vmm);
  EXPECT_EQ(device.reserve_address(kPage, kPage).error(), Error::not_supported);
  EXPECT_EQ(device.create(kPage).error(), Error::not_supported);
  EXPECT_EQ(device.map(0, kPage, PhysicalHandle{1}).error(), Error::not_supported);
  EXPECT_TRUE(device.allocate(kPage));
}

TEST(SimulatedMemoryTest, WorkNeedsMappedAndAccessibleMemory) {
  std::vector<std::string> told;
  SimulatedDeviceOptions options = small_card();
  options.on_violation = [&](const std::string& text) { told.push_back(text); };
  SimulatedBackend device(options);
  const RawStream stream = device.create_stream();
  const DeviceAddress address = device.reserve_address(4 * kPage, kPage).value();
  const PhysicalHandle handle = device.create(kPage).value();
  EXPECT_EQ(device.launch(stream, {.address = address, .bytes = 4}).error(),
            Error::backend_failure);
  ASSERT_TRUE(device.map(address, kPage, handle));
  EXPECT_FALSE(device.launch(stream, {.address = address, .bytes = 4}));  // no access yet
  ASSERT_TRUE(device.set_access(address, kPage));
  EXPECT_TRUE(device.launch(stream, {.address = address, .bytes = kPage}));
  EXPECT_FALSE(device.launch(stream, {.address = address + 1, .bytes = kPage}));  // beyond it
  ASSERT_TRUE(device.unmap(address, kPage));
  EXPECT_FALSE(device.launch(stream, {.address = address, .bytes = 4}));
  ASSERT_TRUE(device.map(address, kPage, handle));
  EXPECT_FALSE(device.launch(stream, {.address = address, .bytes = 4}));  // access was lost
  EXPECT_FALSE(device.launch(stream, {.address = 4096, .bytes = 4}));
  EXPECT_TRUE(device.launch(stream, {}));  // work without memory
  EXPECT_EQ(device.violation_count(), 6u);
  ASSERT_EQ(told.size(), 6u);
  EXPECT_EQ(told.back(), device.last_violation());
  EXPECT_NE(told.back().find("0x1000"), std::string::npos) << told.back();
}

TEST(SimulatedMemoryTest, WorkMaySpanMappingsButNotPlainAllocations) {
  SimulatedBackend device(small_card());
  const RawStream stream = device.create_stream();
  const DeviceAddress pages = map_pages(device, 3);
  EXPECT_TRUE(device.launch(stream, {.address = pages + 5, .bytes = 3 * kPage - 5}));
  const DeviceAddress plain = device.allocate(1024).value();
  EXPECT_TRUE(device.launch(stream, {.address = plain + 512, .bytes = 512}));
  EXPECT_FALSE(device.launch(stream, {.address = plain + 512, .bytes = 513}));
  ASSERT_TRUE(device.deallocate(plain));
  EXPECT_FALSE(device.launch(stream, {.address = plain, .bytes = 1}));
}

TEST(SimulatedMemoryTest, ObjectCountIsZeroWhenAllIsGivenBack) {
  SimulatedBackend device(small_card());
  const DeviceAddress pages = map_pages(device, 2);
  const EventHandle event = device.create_event().value();
  const DeviceAddress plain = device.allocate(1).value();
  EXPECT_EQ(device.object_count(), 2u + 2u + 1u + 1u);
  ASSERT_TRUE(device.unmap(pages, 2 * kPage));
  EXPECT_EQ(device.object_count(), 2u);
  ASSERT_TRUE(device.destroy_event(event));
  ASSERT_TRUE(device.deallocate(plain));
  EXPECT_EQ(device.object_count(), 0u);
}

TEST(SimulatedMemoryTest, RealBytesAreSeenThroughBothMappings) {
  SimulatedBackend device(small_card(SimulatedMemory::real));
  const DeviceAddress range = device.reserve_address(4 * kPage, kPage).value();
  const PhysicalHandle handle = device.create(kPage).value();
  ASSERT_TRUE(device.map(range, kPage, handle));
  ASSERT_TRUE(device.map(range + 3 * kPage, kPage, handle));
  ASSERT_TRUE(device.set_access(range, kPage));
  ASSERT_TRUE(device.set_access(range + 3 * kPage, kPage));
  std::memset(bytes_at(range), 0x5a, kPage);
  EXPECT_EQ(bytes_at(range + 3 * kPage)[kPage - 1], 0x5a);
  bytes_at(range + 3 * kPage)[17] = 0x11;
  EXPECT_EQ(bytes_at(range)[17], 0x11);
  // They stay with the handle when it is mapped elsewhere.
  ASSERT_TRUE(device.unmap(range, kPage));
  ASSERT_TRUE(device.unmap(range + 3 * kPage, kPage));
  ASSERT_TRUE(device.map(range + kPage, kPage, handle));
  ASSERT_TRUE(device.set_access(range + kPage, kPage));
  EXPECT_EQ(bytes_at(range + kPage)[17], 0x11);
}

TEST(SimulatedMemoryTest, RealHandlesStartZeroedAndMayBeMany) {
  SimulatedDeviceOptions options = small_card(SimulatedMemory::real);
  options.granularity_bytes = 4096;
  SimulatedBackend device(options);
  constexpr std::uint64_t kCount = 3000;  // more than a process may have files open
  const DeviceAddress range = device.reserve_address(kCount * 4096, 4096).value();
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < kCount; ++i) {
      const auto handle = device.create(4096);
      ASSERT_TRUE(handle) << i;
      ASSERT_TRUE(device.map(range + i * 4096, 4096, handle.value()));
      ASSERT_TRUE(device.release(handle.value()));
    }
    ASSERT_TRUE(device.set_access(range, kCount * 4096));
    for (std::uint64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(bytes_at(range + i * 4096)[i], 0);
      bytes_at(range + i * 4096)[i] = 1;
    }
    ASSERT_TRUE(device.unmap(range, kCount * 4096));
    ASSERT_EQ(device.held_bytes(), 0u);
  }
}

TEST(SimulatedMemoryTest, RealWorkRunsItsBodyOnTheBytes) {
  SimulatedBackend device(small_card(SimulatedMemory::real));
  const RawStream stream = device.create_stream();
  const DeviceAddress page = map_pages(device, 1);
  const auto write = [page] { bytes_at(page)[3] = 9; };
  ASSERT_TRUE(
      device.launch(stream, {.address = page, .bytes = 8, .until_completed = true, .body = write}));
  EXPECT_EQ(bytes_at(page)[3], 0);
  device.complete(stream);
  EXPECT_EQ(bytes_at(page)[3], 9);
}

}  // namespace
}  // namespace gpupool
