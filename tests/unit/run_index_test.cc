#include "runs/run_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace gpupool::internal {
namespace {

class RunIndexTest : public testing::Test {
 protected:
  RunIndexTest() : index_(runs_) { EXPECT_TRUE(runs_.reserve(4096)); }
  void insert(RunId id, std::uint64_t start, std::uint32_t units) {
    runs_[id].start = start;
    runs_[id].units = units;
    index_.insert(id);
  }

  LazyArray<internal::Run> runs_;
  RunIndex index_;
};

TEST_F(RunIndexTest, AnEmptyOneFindsNothing) {
  EXPECT_TRUE(index_.empty());
  EXPECT_EQ(index_.find_at_least(0), 0u);
  EXPECT_EQ(index_.last(), 0u);
}

TEST_F(RunIndexTest, FindsTheShortestThatIsLongEnoughAndTheLowestOfEquals) {
  insert(1, 100, 8);
  insert(2, 50, 8);
  insert(3, 0, 16);
  insert(4, 200, 4);
  EXPECT_EQ(index_.find_at_least(1), 4u);
  EXPECT_EQ(index_.find_at_least(5), 2u);
  EXPECT_EQ(index_.find_at_least(8), 2u);
  EXPECT_EQ(index_.after(2), 1u);
  EXPECT_EQ(index_.after(1), 3u);
  EXPECT_EQ(index_.after(3), 0u);
  EXPECT_EQ(index_.find_at_least(17), 0u);
  EXPECT_EQ(index_.last(), 3u);
}

TEST_F(RunIndexTest, AgreesWithASetOverManyChanges) {
  using Key = std::pair<std::uint32_t, std::uint64_t>;
  std::set<std::pair<Key, RunId>> expected;
  std::mt19937_64 random(1);
  std::vector<RunId> spare;
  for (RunId id = 1; id < 500; ++id) spare.push_back(id);
  std::vector<RunId> used;
  for (int i = 0; i < 20000; ++i) {
    if (used.empty() || (!spare.empty() && random() % 2 == 0)) {
      const RunId id = spare.back();
      spare.pop_back();
      // Starts differ, as those of runs do.
      insert(id, std::uint64_t{id} * 1000 + random() % 1000,
             1 + static_cast<std::uint32_t>(random() % 20));
      expected.insert({{runs_[id].units, runs_[id].start}, id});
      used.push_back(id);
    } else {
      std::swap(used[random() % used.size()], used.back());
      const RunId id = used.back();
      used.pop_back();
      expected.erase({{runs_[id].units, runs_[id].start}, id});
      index_.erase(id);
      spare.push_back(id);
    }
    const auto units = static_cast<std::uint32_t>(random() % 22);
    const auto best = expected.lower_bound({{units, 0}, 0});
    ASSERT_EQ(index_.find_at_least(units), best == expected.end() ? 0 : best->second);
    ASSERT_EQ(index_.last(), expected.empty() ? 0 : expected.rbegin()->second);
    ASSERT_EQ(index_.empty(), expected.empty());
  }
  RunId id = index_.find_at_least(0);
  for (const auto& [key, expected_id] : expected) {
    ASSERT_EQ(id, expected_id);
    id = index_.after(id);
  }
  EXPECT_EQ(id, 0u);
}

}  // namespace
}  // namespace gpupool::internal
