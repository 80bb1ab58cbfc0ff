// Holes against a map of single pages, with so many that blocks are split and joined.
#include "arena/hole_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/support/random.h"

namespace gpupool::internal {
namespace {

constexpr std::uint64_t kHolePages = 3000;

class HoleListTest : public testing::Test {
 protected:
  /// From `page` on, as far as pages are the same.
  PageSpan same_from(std::uint64_t page) const {
    std::uint64_t end = page;
    while (end < kHolePages && is_hole_[end] == is_hole_[page]) ++end;
    return {page, end - page};
  }
  std::vector<PageSpan> expected() const {
    std::vector<PageSpan> holes;
    for (std::uint64_t page = 0; page < kHolePages; page = same_from(page).end()) {
      if (is_hole_[page]) holes.push_back(same_from(page));
    }
    return holes;
  }
  void fill(PageSpan pages, bool is_hole) {
    std::fill_n(is_hole_.begin() + static_cast<std::ptrdiff_t>(pages.first), pages.count, is_hole);
    if (is_hole) {
      holes_.add(pages);
    } else {
      holes_.remove(pages);
    }
  }
  static void expect_same(std::optional<PageSpan> found, std::optional<PageSpan> right) {
    ASSERT_EQ(found.has_value(), right.has_value());
    if (!found.has_value()) return;
    EXPECT_EQ(found->first, right->first);
    EXPECT_EQ(found->count, right->count);
  }
  void check() const {
    const std::vector<PageSpan> right = expected();
    ASSERT_EQ(holes_.size(), right.size());
    auto hole = holes_.begin();
    std::uint64_t pages = 0;
    std::uint64_t longest = 0;
    for (const PageSpan& span : right) {
      ASSERT_EQ(hole->first, span.first);
      ASSERT_EQ(hole->count, span.count);
      ++hole;
      pages += span.count;
      longest = std::max(longest, span.count);
    }
    ASSERT_TRUE(hole == holes_.end());
    ASSERT_EQ(holes_.check_invariants(), pages);
    ASSERT_EQ(holes_.longest(), longest);
  }
  void check_at(std::uint64_t page, std::uint64_t pages) const {
    const auto find = [&](auto is_right) -> std::optional<PageSpan> {
      const std::vector<PageSpan> all = expected();
      const auto found = std::find_if(all.begin(), all.end(), is_right);
      if (found == all.end()) return std::nullopt;
      return *found;
    };
    expect_same(holes_.find_first(pages), find([&](PageSpan it) { return it.count >= pages; }));
    expect_same(holes_.ending_at(page), find([&](PageSpan it) { return it.end() == page; }));
    expect_same(holes_.starting_at(page), find([&](PageSpan it) { return it.first == page; }));
  }

  HoleList holes_;
  std::vector<bool> is_hole_ = std::vector<bool>(kHolePages);
};

TEST_F(HoleListTest, IsWhatWasAddedAndNotRemoved) {
  test::Random random(5);
  std::size_t most = 0;
  for (int step = 0; step < 8000; ++step) {
    const std::uint64_t page = random.below(kHolePages);
    PageSpan pages = same_from(page);
    pages.count = std::min(pages.count, random.one_in(40) ? kHolePages : random.between(1, 3));
    // By turns more and fewer of them.
    if (step / 2000 % 2 == 0 || is_hole_[page] || random.one_in(3)) fill(pages, !is_hole_[page]);
    most = std::max(most, holes_.size());
    if (step % 7 == 0) check();
    if (step % 7 == 0) check_at(random.below(kHolePages + 1), random.between(1, 12));
  }
  check();
  EXPECT_GT(most, 4 * HoleList::kMost);
}

TEST_F(HoleListTest, SinglePagesApartAreAsManyHolesAndComeTogether) {
  for (std::uint64_t page = kHolePages - 2; page > 0; page -= 2) fill({page, 1}, true);
  check();
  EXPECT_EQ(holes_.size(), kHolePages / 2 - 1);
  for (std::uint64_t page = 1; page < kHolePages; page += 2) fill({page, 1}, true);
  check();
  EXPECT_EQ(holes_.size(), 1u);
  fill({1, kHolePages - 1}, false);
  check();
  EXPECT_EQ(holes_.size(), 0u);
  EXPECT_FALSE(holes_.find_first(1).has_value());
}

}  // namespace
}  // namespace gpupool::internal
