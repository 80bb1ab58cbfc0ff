// From units to addresses and back, for a few ranges and for pages anywhere.
#include "arena/address_map.h"

#include <gtest/gtest.h>

namespace gpupool::internal {
namespace {

constexpr DeviceAddress kBase = DeviceAddress{1} << 44;
constexpr DeviceAddress kEnd = DeviceAddress{1} << 49;

TEST(AddressMapTest, ARangeKnowsItsOwnAddressesAndNoOthers) {
  AddressMap map;
  map.add_range(kBase, 4);
  EXPECT_EQ(map.range_base(), kBase);
  EXPECT_EQ(map.range_units(), 4 * kUnitsPerPage);
  for (const std::uint64_t unit :
       {std::uint64_t{0}, std::uint64_t{1}, 4 * std::uint64_t{512} - 1}) {
    const DeviceAddress address = map.address_of(unit);
    EXPECT_EQ(address, kBase + unit * kUnitBytes);
    EXPECT_EQ(map.unit_at(address), unit);
    EXPECT_EQ(map.unit_at(address + kUnitBytes - 1), unit);
  }
  const DeviceAddress end = kBase + 4 * kPageBytes;
  for (const DeviceAddress address :
       {DeviceAddress{0}, DeviceAddress{1}, kBase - 1, kBase - kUnitBytes, end, end + 1, kEnd - 1,
        kEnd, kEnd + kBase, ~DeviceAddress{0}, ~DeviceAddress{0} - kUnitBytes}) {
    EXPECT_EQ(map.unit_at(address), kNoUnit) << address;
  }
}

TEST(AddressMapTest, ARangeAtTheEndOfAllAddresses) {
  AddressMap map;
  const DeviceAddress base = ~DeviceAddress{0} - kPageBytes + 1;
  map.add_range(base, 1);
  EXPECT_EQ(map.unit_at(~DeviceAddress{0}), kUnitsPerPage - 1u);
  EXPECT_EQ(map.unit_at(base), 0u);
  EXPECT_EQ(map.unit_at(base - 1), kNoUnit);
  EXPECT_EQ(map.unit_at(0), kNoUnit);
}

TEST(AddressMapTest, BeforeItStartsItKnowsNothing) {
  const AddressMap map;
  EXPECT_EQ(map.unit_at(0), kNoUnit);
  EXPECT_EQ(map.unit_at(kBase), kNoUnit);
  EXPECT_EQ(map.range_units(), 0u);
}

TEST(AddressMapTest, TheLineGoesOnFromRangeToRangeWhereverThoseLie) {
  AddressMap map;
  constexpr std::uint64_t kUnits = 4 * kUnitsPerPage;
  // One below the first, one right behind it, one far away.
  const DeviceAddress bases[] = {kBase, kBase - 64 * kPageBytes, kBase + 4 * kPageBytes, kEnd};
  for (std::size_t range = 0; range < AddressMap::kMaxRanges; ++range) {
    EXPECT_EQ(map.unit_at(bases[range]), kNoUnit);
    map.add_range(bases[range], 4);
    EXPECT_EQ(map.range_count(), range + 1);
  }
  EXPECT_EQ(map.range_base(), kBase);  // of the first alone
  EXPECT_EQ(map.range_units(), kUnits);
  for (std::size_t range = 0; range < AddressMap::kMaxRanges; ++range) {
    for (const std::uint64_t unit : {std::uint64_t{0}, std::uint64_t{513}, kUnits - 1}) {
      const DeviceAddress address = bases[range] + unit * kUnitBytes;
      EXPECT_EQ(map.address_of(range * kUnits + unit), address);
      EXPECT_EQ(map.unit_at(address), range * kUnits + unit);
      EXPECT_EQ(map.unit_at(address + kUnitBytes - 1), range * kUnits + unit);
    }
  }
  for (const DeviceAddress address :
       {DeviceAddress{0}, kBase - 1, kBase - 64 * kPageBytes - 1, kBase - 60 * kPageBytes,
        kBase + 8 * kPageBytes, kEnd - 1, kEnd + 4 * kPageBytes, ~DeviceAddress{0}}) {
    EXPECT_EQ(map.unit_at(address), kNoUnit) << address;
  }
}

TEST(AddressMapTest, PagesLieAnywhere) {
  AddressMap map;
  ASSERT_TRUE(map.start_pages(8));
  EXPECT_EQ(map.range_units(), 0u);  // whoever does it himself finds none
  map.set_page(3, kBase);
  map.set_page(5, kEnd - kPageBytes);
  map.set_page(0, kPageBytes);
  for (const auto& [page, address] : {std::pair<std::uint64_t, DeviceAddress>{3, kBase},
                                      {5, kEnd - kPageBytes},
                                      {0, kPageBytes}}) {
    const std::uint64_t first = page * kUnitsPerPage;
    EXPECT_EQ(map.address_of(first), address);
    EXPECT_EQ(map.address_of(first + 7), address + 7 * kUnitBytes);
    EXPECT_EQ(map.unit_at(address), first);
    EXPECT_EQ(map.unit_at(address + 7 * kUnitBytes + 4095), first + 7);
    EXPECT_EQ(map.unit_at(address + kPageBytes - 1), first + kUnitsPerPage - 1);
    EXPECT_EQ(map.unit_at(address - 1), kNoUnit);
    EXPECT_EQ(map.unit_at(address + kPageBytes), kNoUnit);
  }
  for (const DeviceAddress address :
       {DeviceAddress{0}, kEnd, kEnd + 1, kEnd + kBase, ~DeviceAddress{0}}) {
    EXPECT_EQ(map.unit_at(address), kNoUnit) << address;
  }
}

TEST(AddressMapTest, APageThatIsGoneIsNowhere) {
  AddressMap map;
  ASSERT_TRUE(map.start_pages(8));
  map.set_page(2, kBase);
  map.clear_page(2);
  EXPECT_EQ(map.unit_at(kBase), kNoUnit);
  // Its address may come back under another number, and it at another address.
  map.set_page(4, kBase);
  map.set_page(2, 2 * kBase);
  EXPECT_EQ(map.unit_at(kBase), 4 * kUnitsPerPage);
  EXPECT_EQ(map.unit_at(2 * kBase), 2 * kUnitsPerPage);
}

TEST(AddressMapTest, CanHoldAddressesOf49Bits) {
  EXPECT_TRUE(AddressMap::can_hold(kBase));
  EXPECT_TRUE(AddressMap::can_hold(kEnd));
  EXPECT_FALSE(AddressMap::can_hold(kEnd + 1));
}

}  // namespace
}  // namespace gpupool::internal
