// Who loads a configuration has its misuses on standard error without a line of his own.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpupool/exporter/config.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"

namespace gpupool {
namespace {

/// What two second frees of one block and a third of another kind leave on standard error.
std::string errors_of_misuses(const PoolOptions& options) {
  SimulatedBackend device;
  testing::internal::CaptureStderr();
  const auto pool = Pool::create(device, options);
  EXPECT_TRUE(pool.ok());
  Pool& the = *pool.value();
  const StreamRef stream = the.adopt_stream(device.create_stream()).value();
  void* const block = the.allocate(1000, stream).value();
  EXPECT_TRUE(the.deallocate(block, stream));
  EXPECT_FALSE(the.deallocate(block, stream));
  EXPECT_FALSE(the.deallocate(block, stream));
  int local = 0;
  EXPECT_FALSE(the.deallocate(&local, stream));
  return testing::internal::GetCapturedStderr();
}

TEST(MisuseLog, ALineForTheFirstOfEachKind) {
  const auto config = parse_config("pool: {on_misuse: report}");
  ASSERT_TRUE(config.ok());
  const std::string errors = errors_of_misuses(config.value().pool);
  EXPECT_EQ(errors.rfind("gpupool: misuse: double_free of 0x", 0), 0u) << errors;
  const std::size_t second = errors.find('\n') + 1;
  EXPECT_EQ(errors.rfind("gpupool: misuse: foreign_pointer of 0x", second), second) << errors;
  EXPECT_EQ(errors.find('\n', second) + 1, errors.size()) << errors;
}

TEST(MisuseLog, ItKnowsTheFilesTags) {
  const auto config = parse_config("tags: [weights, kv_cache]");
  ASSERT_TRUE(config.ok());
  testing::internal::CaptureStderr();
  config.value().pool.misuse_handler(
      {.kind = Misuse::canary, .first_of_kind = true, .tag = Tag(1)});
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_NE(errors.find("tag kv_cache;"), std::string::npos) << errors;
}

TEST(MisuseLog, AHandlerInItsPlaceHasThemAll) {
  auto config = parse_config("version: 1");
  ASSERT_TRUE(config.ok());
  PoolOptions options = config.value().pool;
  std::vector<Misuse> kinds;
  options.misuse_handler = [&](const MisuseReport& report) { kinds.push_back(report.kind); };
  EXPECT_EQ(errors_of_misuses(options), "");
  EXPECT_EQ(kinds.size(), 3u);
}

TEST(MisuseLogDeathTest, AbortComesAfterTheLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto config = parse_config("pool: {on_misuse: abort}");
  ASSERT_TRUE(config.ok());
  EXPECT_DEATH(
      {
        SimulatedBackend device;
        const auto pool = Pool::create(device, config.value().pool);
        int local = 0;
        pool.value()->deallocate(&local,
                                 pool.value()->adopt_stream(device.create_stream()).value());
      },
      "^gpupool: misuse: foreign_pointer of 0x[0-9a-f]+; further ones [^\n]*\n$");
}

}  // namespace
}  // namespace gpupool
