// Borders that are noted, looked at and dropped, against a set of them.
#include "runs/seams.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "tests/support/random.h"

namespace gpupool::internal {
namespace {

constexpr std::uint64_t kUnits = 3'000'000;

std::vector<std::uint64_t> look(Seams& seams, const std::set<std::uint64_t>& over) {
  std::vector<std::uint64_t> seen;
  seams.for_each([&](std::uint64_t unit) {
    seen.push_back(unit);
    return over.count(unit) > 0 ? Seams::Is::over : Seams::Is::there;
  });
  return seen;
}

TEST(SeamsTest, AreThoseThatWereNotedAndNotDropped) {
  test::Random random(3);
  Seams seams;
  ASSERT_TRUE(seams.reserve(kUnits));
  EXPECT_TRUE(look(seams, {}).empty());
  std::set<std::uint64_t> noted;
  for (int step = 0; step < 300; ++step) {
    for (std::uint64_t i = random.below(40); i > 0; --i) {
      const std::uint64_t unit = random.one_in(2) ? random.below(2000) : random.below(kUnits);
      seams.note(unit);
      noted.insert(unit);
    }
    std::set<std::uint64_t> over;
    for (const std::uint64_t unit : noted) {
      ASSERT_TRUE(seams.has(unit));
      if (random.one_in(step % 20 == 0 ? 1 : 4)) over.insert(unit);
    }
    ASSERT_EQ(look(seams, over), std::vector<std::uint64_t>(noted.begin(), noted.end()));
    for (const std::uint64_t unit : over) {
      noted.erase(unit);
      ASSERT_FALSE(seams.has(unit));
    }
  }
  seams.note(kUnits);
  noted.insert(kUnits);
  EXPECT_EQ(look(seams, {}), std::vector<std::uint64_t>(noted.begin(), noted.end()));
}

}  // namespace
}  // namespace gpupool::internal
