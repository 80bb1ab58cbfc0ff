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
  EXPECT_EQ(index_.longest_units(), 0u);
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
  EXPECT_EQ(index_.longest_units(), 16u);
}

TEST_F(RunIndexTest, BinsAreInOrderAndEachLengthHasOne) {
  EXPECT_EQ(RunIndex::bin_of(0), 0u);
  // Every length where bins are narrow, then the edges of each doubling and of its steps.
  std::uint32_t bin = 0;
  for (std::uint32_t units = 1; units < 1 << 16; ++units) {
    const std::uint32_t next = RunIndex::bin_of(units);
    ASSERT_TRUE(next == bin || next == bin + 1) << units;
    ASSERT_TRUE(units >= 64 || next == units) << units;
    bin = next;
  }
  for (unsigned k = 16; k < 32; ++k) {
    for (std::uint32_t step = 0; step < 32; ++step) {
      const std::uint32_t first = (1U << k) + (step << (k - 5));
      ASSERT_EQ(RunIndex::bin_of(first - 1), bin) << first;
      ASSERT_EQ(RunIndex::bin_of(first), ++bin) << first;
    }
  }
  EXPECT_EQ(RunIndex::bin_of(0xffffffff), bin);
}

TEST_F(RunIndexTest, FindsAcrossTheEdgesOfBins) {
  RunId id = 0;
  std::vector<std::uint32_t> lengths;
  for (unsigned k = 0; k < 32; ++k) {
    for (const std::uint32_t units : {(1U << k) - 1, 1U << k, (1U << k) + 1}) {
      if (units == 0 || (!lengths.empty() && units <= lengths.back())) continue;
      lengths.push_back(units);
      ++id;
      insert(id, std::uint64_t{id} << 33, units);
    }
  }
  lengths.push_back(0xffffffff);
  insert(++id, 0, lengths.back());
  EXPECT_EQ(index_.check_invariants(), lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const RunId found = index_.find_at_least(lengths[i]);
    EXPECT_EQ(runs_[found].units, lengths[i]);
    EXPECT_EQ(index_.find_at_least(i == 0 ? 0 : lengths[i - 1] + 1), found);
    EXPECT_EQ(index_.after(found),
              i + 1 < lengths.size() ? index_.find_at_least(lengths[i + 1]) : 0);
  }
  EXPECT_EQ(index_.longest_units(), 0xffffffff);
  // From the shortest on, so that each word of the bitmap becomes empty.
  for (const std::uint32_t units : lengths) {
    ASSERT_EQ(runs_[index_.find_at_least(0)].units, units);
    index_.erase(index_.find_at_least(0));
    index_.check_invariants();
  }
  EXPECT_TRUE(index_.empty());
}

TEST_F(RunIndexTest, ManyInOneBinComeOutByLengthAndStart) {
  // 2^20 to 2^20 + 2^15 units share a bin; starts in equal steps, as those of equal blocks.
  for (RunId id = 1; id < 3000; ++id) insert(id, id * 610ULL, (1U << 20) + id % 7);
  EXPECT_EQ(index_.check_invariants(), 2999u);
  std::pair<std::uint32_t, std::uint64_t> before{0, 0};
  for (RunId id = index_.find_at_least(1U << 20); id != 0; id = index_.find_at_least(0)) {
    const std::pair<std::uint32_t, std::uint64_t> key{runs_[id].units, runs_[id].start};
    ASSERT_LT(before, key);
    before = key;
    index_.erase(id);
  }
  EXPECT_TRUE(index_.empty());
}

TEST_F(RunIndexTest, AWalkMeetsEachOnceAndMayEraseWhatItHasMet) {
  // Bins of one, of a few, and of many; those that a search orders and those that none has seen.
  for (const bool is_searched : {false, true}) {
    std::set<RunId> left;
    for (RunId id = 1; id < 400; ++id) {
      const std::uint32_t units = id < 10 ? id : id < 14 ? 20 : id < 300 ? 30 : 1000 + id % 3;
      insert(id, id * 100ULL, units);
      left.insert(id);
    }
    if (is_searched) {
      EXPECT_EQ(index_.find_at_least(30), 14u);
      EXPECT_EQ(index_.find_at_least(1000), 300u);
    }
    EXPECT_EQ(index_.check_invariants(), left.size());
    for (RunId id = index_.first_walked(); id != 0;) {
      const RunId next = index_.next_walked(id);
      ASSERT_EQ(left.erase(id), 1u);
      if (id % 3 != 0) index_.erase(id);
      id = next;
    }
    EXPECT_TRUE(left.empty());
    EXPECT_EQ(index_.check_invariants(), 133u);
    for (RunId id = index_.first_walked(); id != 0; id = index_.first_walked()) {
      ASSERT_EQ(id % 3, 0u);
      index_.erase(id);
    }
    EXPECT_TRUE(index_.empty());
  }
}

TEST_F(RunIndexTest, AnswersAreTheSameOnBothSidesOfTheLongestList) {
  for (RunId count = 2; count <= RunIndex::kMaxListed + 2; ++count) {
    // Put in from the last to the first, all in one bin, of three lengths.
    for (RunId id = count; id > 0; --id) insert(id, id, 1024 + id % 3);
    for (const std::uint32_t units : {1024U, 1025U, 1026U}) {
      const RunId first = units == 1024 ? 3 : units == 1025 ? 1 : 2;
      const RunId best = first <= count ? first : index_.find_at_least(units + 1);
      EXPECT_EQ(index_.find_at_least(units), best) << count;
    }
    RunId met = 0;
    for (RunId id = index_.find_at_least(0); id != 0; id = index_.after(id)) {
      ++met;
      const RunId next = index_.after(id);
      ASSERT_TRUE(next == 0 || runs_[next].units > runs_[id].units || next > id);
      if (next == 0) {
        EXPECT_EQ(index_.longest_units(), runs_[id].units);
      }
    }
    EXPECT_EQ(met, count);
    EXPECT_EQ(index_.check_invariants(), count);
    for (RunId id = 1; id <= count; ++id) index_.erase(id);
    EXPECT_TRUE(index_.empty());
  }
}

/// How the lengths of runs are spread: within one bin, over the narrow ones, over all.
class RunIndexModelTest : public RunIndexTest, public testing::WithParamInterface<int> {
 protected:
  std::uint32_t random_units(std::mt19937_64& random) {
    if (GetParam() == 0) return 1 + static_cast<std::uint32_t>(random() % 20);
    if (GetParam() == 1) return 60 + static_cast<std::uint32_t>(random() % 80);
    const std::uint32_t edge = 1U << random() % 31;
    return edge + static_cast<std::uint32_t>(random() % 3) * (edge / 32);
  }
};

TEST_P(RunIndexModelTest, AgreesWithASetOverManyChanges) {
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
      insert(id, std::uint64_t{id} * 1000 + random() % 1000, random_units(random));
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
    const std::uint32_t units = random_units(random) + static_cast<std::uint32_t>(random() % 3) - 1;
    const auto best = expected.lower_bound({{units, 0}, 0});
    ASSERT_EQ(index_.find_at_least(units), best == expected.end() ? 0 : best->second);
    ASSERT_EQ(index_.longest_units(), expected.empty() ? 0 : expected.rbegin()->first.first);
    ASSERT_EQ(index_.empty(), expected.empty());
    if (i % 64 == 0) {
      ASSERT_EQ(index_.check_invariants(), expected.size());
    }
  }
  RunId id = index_.find_at_least(0);
  for (const auto& [key, expected_id] : expected) {
    ASSERT_EQ(id, expected_id);
    id = index_.after(id);
  }
  EXPECT_EQ(id, 0u);
}
INSTANTIATE_TEST_SUITE_P(All, RunIndexModelTest, testing::Values(0, 1, 2));

}  // namespace
}  // namespace gpupool::internal
