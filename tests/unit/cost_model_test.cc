#include "backend/cost_model.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace gpupool::internal {
namespace {

TEST(CostModel, GivesTheMeasuredPoints) {
  EXPECT_EQ(modelled_cost_ns(BackendCall::create, 2 * kMiB), 10600u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::create, 256 * kMiB), 33000u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::map, 2 * kMiB), 1000u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::set_access, 2 * kMiB), 24000u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::unmap, 2 * kMiB), 16000u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::release, 256 * kMiB), 146000u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::allocate, 1024 * kMiB), 985000u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::deallocate, 32 * kMiB), 46000u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::record_event, 0), 420u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::query_event, 0), 350u);
}

TEST(CostModel, IsFlatOutsideTheMeasuredSizes) {
  EXPECT_EQ(modelled_cost_ns(BackendCall::allocate, 1), 41000u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::allocate, 0), 41000u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::create, 4096 * kMiB), 97000u);
}

TEST(CostModel, InterpolatesInTheLogarithmOfBytes) {
  // 8 MiB is half way between 2 and 32 MiB in log2.
  EXPECT_EQ(modelled_cost_ns(BackendCall::create, 8 * kMiB), 10800u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::release, 8 * kMiB), 24000u);
  // 512 MiB is half way between 256 MiB and 1 GiB.
  EXPECT_EQ(modelled_cost_ns(BackendCall::release, 512 * kMiB), 331000u);
}

TEST(CostModel, SpansCostByMappingAndHardlyByByte) {
  const std::uint64_t one = modelled_cost_ns(BackendCall::set_access, 2 * kMiB, 1);
  const std::uint64_t two = modelled_cost_ns(BackendCall::set_access, 4 * kMiB, 2);
  EXPECT_EQ(two - one, 27000u);
  EXPECT_EQ(modelled_cost_ns(BackendCall::unmap, 6 * kMiB, 3), 16000u + 2 * 18000u);
}

struct Measured {
  std::uint64_t mappings;
  double set_access_ms;
  double unmap_ms;
};

// 1 GiB of addresses over handles of 1 GiB / mappings, measured as a whole.
TEST(CostModel, AgreesWithWholeSpansAsMeasured) {
  for (const Measured& row : {Measured{512, 14.3, 9.5}, Measured{64, 1.4, 0.9},
                              Measured{32, 0.94, 0.59}, Measured{8, 0.22, 0.13}}) {
    const double set_access =
        static_cast<double>(modelled_cost_ns(BackendCall::set_access, 1024 * kMiB, row.mappings));
    const double unmap =
        static_cast<double>(modelled_cost_ns(BackendCall::unmap, 1024 * kMiB, row.mappings));
    EXPECT_NEAR(set_access / 1e6, row.set_access_ms, 0.3 * row.set_access_ms) << row.mappings;
    EXPECT_NEAR(unmap / 1e6, row.unmap_ms, 0.3 * row.unmap_ms) << row.mappings;
  }
}

}  // namespace
}  // namespace gpupool::internal
