#include "backend/ledger.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace gpupool::internal {
namespace {

constexpr DeviceAddress kBase = std::uint64_t{1} << 40;

TEST(Ledger, CountsAHandleUntilItIsReleasedAndUnmapped) {
  Ledger ledger;
  const PhysicalHandle handle{7};
  ledger.add_handle(handle, kPage);
  EXPECT_EQ(ledger.held_bytes(), kPage);
  ASSERT_TRUE(ledger.add_mapping(kBase, kPage, handle));
  ASSERT_TRUE(ledger.add_mapping(kBase + kPage, kPage, handle));
  EXPECT_EQ(ledger.held_bytes(), kPage);
  const auto release = ledger.take_handle(handle);
  ASSERT_TRUE(release);
  ledger.finish(*release);
  EXPECT_EQ(ledger.held_bytes(), kPage);
  ledger.finish(ledger.take_mappings(kBase, kPage));
  EXPECT_EQ(ledger.held_bytes(), kPage);
  ledger.finish(ledger.take_mappings(kBase + kPage, kPage));
  EXPECT_EQ(ledger.held_bytes(), 0u);
}

TEST(Ledger, KeepsApartHandlesThatTheDriverGaveTwice) {
  Ledger ledger;
  const PhysicalHandle handle{7};
  ledger.add_handle(handle, kPage);
  ASSERT_TRUE(ledger.add_mapping(kBase, kPage, handle));
  ledger.finish(*ledger.take_handle(handle));
  ledger.add_handle(handle, 2 * kPage);  // the same value, while the first is still mapped
  EXPECT_EQ(ledger.held_bytes(), 3 * kPage);
  ledger.finish(ledger.take_mappings(kBase, kPage));
  EXPECT_EQ(ledger.held_bytes(), 2 * kPage);
  ledger.finish(*ledger.take_handle(handle));
  EXPECT_EQ(ledger.held_bytes(), 0u);
}

TEST(Ledger, RestoresWhatTheDriverRefusedToTake) {
  Ledger ledger;
  const PhysicalHandle handle{7};
  ledger.add_handle(handle, kPage);
  ASSERT_TRUE(ledger.add_mapping(kBase, kPage, handle));
  const auto release = ledger.take_handle(handle);
  ASSERT_TRUE(release);
  EXPECT_FALSE(ledger.take_handle(handle));
  ledger.restore(*release);
  const auto mappings = ledger.take_mappings(kBase, kPage);
  ASSERT_EQ(mappings.size(), 1u);
  EXPECT_FALSE(ledger.is_mapped(kBase, kPage));
  ledger.restore(mappings);
  EXPECT_TRUE(ledger.is_mapped(kBase, kPage));
  ledger.add_plain(kBase / 2, 512);
  const auto bytes = ledger.take_plain(kBase / 2);
  ASSERT_TRUE(bytes);
  EXPECT_FALSE(ledger.take_plain(kBase / 2));
  ledger.restore_plain(kBase / 2, *bytes);
  EXPECT_EQ(ledger.held_bytes(), kPage + 512);
  ASSERT_TRUE(ledger.take_plain(kBase / 2));
  ledger.finish_plain(512);
  EXPECT_EQ(ledger.held_bytes(), kPage);
}

TEST(Ledger, KnowsWholeMappingsOnly) {
  Ledger ledger;
  const PhysicalHandle one{1};
  const PhysicalHandle two{2};
  ledger.add_handle(one, kPage);
  ledger.add_handle(two, 2 * kPage);
  EXPECT_FALSE(ledger.add_mapping(kBase, 2 * kPage, one));  // not its size
  EXPECT_FALSE(ledger.add_mapping(kBase, kPage, PhysicalHandle{3}));
  ASSERT_TRUE(ledger.add_mapping(kBase, kPage, one));
  ASSERT_TRUE(ledger.add_mapping(kBase + kPage, 2 * kPage, two));
  EXPECT_FALSE(ledger.add_mapping(kBase + 2 * kPage, kPage, one));  // in the second mapping
  EXPECT_TRUE(ledger.is_mapped(kBase, 3 * kPage));
  EXPECT_FALSE(ledger.is_mapped(kBase, 2 * kPage));
  EXPECT_FALSE(ledger.is_mapped(kBase, 4 * kPage));
  EXPECT_FALSE(ledger.is_mapped(kBase, 0));
  EXPECT_TRUE(ledger.take_mappings(kBase + 2 * kPage, kPage).empty());
  EXPECT_TRUE(ledger.has_mappings(kBase + 2 * kPage, kPage));
  EXPECT_EQ(ledger.take_mappings(kBase, 3 * kPage).size(), 2u);
  EXPECT_FALSE(ledger.has_mappings(kBase, 3 * kPage));
}

}  // namespace
}  // namespace gpupool::internal
