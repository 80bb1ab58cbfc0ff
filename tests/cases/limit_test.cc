// Memory capped by a fraction of the card (pytorch#58466, #107667, #111729, #69688,
// tensorflow#22239; case B13): 0.5 of 10 989 MB came to 6 509, a cap of 100 MB to 430, 1.0 failed
// at start, and who met the cap did not recognise it in the error.
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/cases/case_pool.h"
#include "tests/cases/config_pool.h"
#include "tests/support/units.h"

namespace gpupool::test {
namespace {

TEST(CaseB13, WhatIsNoFractionIsRefusedByName) {
  for (const char* value :
       {"0", "0.0", "1.5", "-0.1", ".nan", "NaN", "nan", ".inf", "-1", "101%"}) {
    const auto config = parse_config(as_yaml(std::string("capacity: ") + value));
    ASSERT_FALSE(config.ok()) << value;
    EXPECT_EQ(config.error().size(), 1u) << value;
    EXPECT_EQ(config.error()[0].key_path, "pool.capacity") << value;
    EXPECT_EQ(config.error()[0].line, 2) << value;
  }
  // Nor past the file.
  SimulatedBackend device({.capacity_bytes = kGiB});
  for (const double value : {0.0, 1.5, -0.1, std::numeric_limits<double>::quiet_NaN()}) {
    PoolOptions options;
    options.capacity = value;
    EXPECT_FALSE(Pool::create(device, options).ok()) << value;
  }
}

/// A fraction of the card counts in whole pages.
constexpr std::uint64_t whole_pages(std::uint64_t bytes) { return bytes / kPage * kPage; }

struct Capped {
  const char* keys;
  std::uint64_t card_bytes;
  std::uint64_t taken_bytes;  // by the contexts of others
  std::uint64_t limit_bytes;  // that no byte may be held beyond
  Recycling recycling = Recycling::off;
  friend std::ostream& operator<<(std::ostream& out, const Capped& it) { return out << it.keys; }
};

class CaseB13Limits : public testing::TestWithParam<Capped> {};

/// A pool of `it` on a card where others have taken theirs.
class CappedPool {
 public:
  explicit CappedPool(const Capped& it) : device_({.capacity_bytes = it.card_bytes}) {
    EXPECT_TRUE(device_.set_taken_by_others(it.taken_bytes).ok());
    PoolOptions options = configured(it.keys);
    options.runtime.recycling = it.recycling;
    auto created = Pool::create(device_, options);
    if (!created.ok()) ADD_FAILURE() << created.error().message;
    if (created.ok()) pool_ = std::move(created).value();
    if (pool_ != nullptr) stream_ = pool_->adopt_stream(device_.create_stream()).value();
  }
  SimulatedBackend device_;
  std::unique_ptr<Pool> pool_;
  StreamRef stream_;
};

TEST_P(CaseB13Limits, NoByteIsHeldBeyondItAllUpToItIsServedAndTheErrorNamesIt) {
  const Capped& it = GetParam();
  CappedPool capped(it);
  ASSERT_NE(capped.pool_, nullptr);
  Pool& pool = *capped.pool_;
  // A program of all sizes, and of blocks that the driver allocates by themselves.
  std::vector<void*> blocks;
  for (std::uint64_t i = 0;; ++i) {
    AllocationRequest request;
    request.bytes = std::uint64_t{1} << (9 + i % 20);
    if (i % 16 == 15) request.allocation_class = AllocationClass::contiguous;
    const auto block = pool.allocate(request, capped.stream_);
    ASSERT_LE(capped.device_.held_bytes(), it.limit_bytes);
    if (!block.ok()) break;
    blocks.push_back(block.value());
  }
  EXPECT_EQ(pool.last_failure().limit_bytes, it.limit_bytes);
  // What others took is not in it.
  EXPECT_EQ(pool.stats().device_total_bytes, it.card_bytes);
  for (void* block : blocks) EXPECT_TRUE(pool.deallocate(block, capped.stream_));

  // Whole pages up to it are of use, to the last.
  pool.trim(0);
  const std::uint64_t all = it.limit_bytes / kPage * kPage;
  const auto block = pool.allocate(all, capped.stream_);
  ASSERT_TRUE(block.ok()) << pool.last_failure().text();
  EXPECT_EQ(capped.device_.held_bytes(), all);
  EXPECT_FALSE(pool.allocate(kPage, capped.stream_).ok());
  const std::string why = pool.last_failure().text();
  EXPECT_EQ(pool.last_failure().reason, MissReason::budget) << why;
  EXPECT_NE(why.find("the limit or the device is full"), std::string::npos) << why;
  const bool is_fraction = std::holds_alternative<double>(configured(it.keys).capacity);
  EXPECT_EQ(pool.last_failure().limit_kind,
            is_fraction ? LimitKind::capacity_fraction : LimitKind::capacity_bytes);
  const std::string name = is_fraction ? "  capacity: " : "  capacity\n";
  EXPECT_NE(why.find(name), std::string::npos) << why;
  EXPECT_TRUE(pool.deallocate(block.value(), capped.stream_));
  EXPECT_FALSE(pool.allocate(all + kPage, capped.stream_).ok());
  EXPECT_EQ(pool.last_failure().error, Error::limit_exceeded);
}

constexpr std::uint64_t kTf22239Card = 10'989 * kMiB;
constexpr std::uint64_t kPyTorch111729Card = 22'917 * kMiB;  // 22.38 GiB, of which 22.21 are free
constexpr std::uint64_t kSmallCard = 1'024 * kMiB;

INSTANTIATE_TEST_SUITE_P(
    All, CaseB13Limits,
    testing::Values(
        Capped{"capacity: 0.5", kTf22239Card, 0, whole_pages(kTf22239Card / 2)},
        Capped{"capacity: 0.1", kTf22239Card, 0, whole_pages(kTf22239Card / 10)},
        Capped{"capacity: 10%", kTf22239Card, 512 * kMiB,
               whole_pages((kTf22239Card - 512 * kMiB) / 10)},
        Capped{"capacity: 100MB", 8 * kGiB, 0, 100'000'000},
        Capped{"capacity: 1.0", kPyTorch111729Card, 174 * kMiB,
               whole_pages(kPyTorch111729Card - 174 * kMiB)},
        Capped{"capacity: 5121748500", 12'492 * kMiB, 0, 5'121'748'500},
        Capped{"capacity: 1.0, backing: cudamalloc", kSmallCard, 100 * kMiB, 924 * kMiB},
        Capped{"capacity: 0.5, reserve: 100MiB", kSmallCard, 0, 512 * kMiB},
        Capped{"capacity: 0.5", kTf22239Card, 0, whole_pages(kTf22239Card / 2), Recycling::eager},
        Capped{"capacity: 0.5", kTf22239Card, 0, whole_pages(kTf22239Card / 2),
               Recycling::pressure}));

}  // namespace
}  // namespace gpupool::test
