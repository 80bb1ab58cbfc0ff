// "Would it fit?" over the API is what the pool does with the next such request; and whose settings
// are whose.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "exporter/http/pool_sources.h"
#include "exporter/http/settings_hash.h"
#include "exporter/http/would_fit_json.h"
#include "gpupool/simulated_backend.h"

namespace gpupool::internal {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMiB = 1 << 20;

Query query(const std::string& text) {
  static constexpr std::string_view kKnown[] = {"bytes", "stream"};
  return Query::parse(text, kKnown).value();
}

class WouldFitTest : public testing::Test {
 protected:
  static std::unique_ptr<Pool> make_pool(SimulatedBackend& backend, PoolOptions options = {}) {
    options.capacity = 16 * kMiB;
    options.runtime.out_of_memory.wait_ns = 0;
    return Pool::create(backend, options).value();
  }
  json ask(const std::string& text) const {
    return json::parse(would_fit_document(*pool_, query(text)).value().body);
  }
  std::string fit(std::uint64_t bytes, std::uint64_t stream = 0) const {
    std::string text = "bytes=" + std::to_string(bytes);
    if (stream != 0) text += "&stream=" + std::to_string(stream);
    return ask(text)["fit"];
  }
  std::string complaint(const std::string& text) const {
    return would_fit_document(*pool_, query(text)).error();
  }
  /// The number by which the map names the stream of a live block.
  std::uint64_t number_of(void* block) const {
    std::uint64_t number = 0;
    pool_->visit_blocks([&](const BlockInfo& info) {
      if (info.address == reinterpret_cast<DeviceAddress>(block)) number = info.stream_id;
    });
    return number;
  }

  SimulatedBackend backend_;
  std::unique_ptr<Pool> pool_ = make_pool(backend_);
  RawStream raw_a_ = backend_.create_stream();
  StreamRef a_ = pool_->adopt_stream(raw_a_).value();
  StreamRef b_ = pool_->adopt_stream(backend_.create_stream()).value();
};

TEST_F(WouldFitTest, EachAnswerIsWhatTheNextRequestMeets) {
  EXPECT_EQ(fit(16 * kMiB), "by_growth");
  EXPECT_EQ(fit(16 * kMiB + 1), "no");
  void* const block = pool_->allocate(12 * kMiB, a_).value();
  void* const mark = pool_->allocate(512, b_).value();
  const std::uint64_t a = number_of(block);
  const std::uint64_t b = number_of(mark);
  ASSERT_NE(a, b);
  EXPECT_EQ(fit(12 * kMiB), "no");
  EXPECT_FALSE(pool_->allocate(12 * kMiB, b_).ok());
  ASSERT_TRUE(backend_.launch(raw_a_, {.until_completed = true}).ok());
  pool_->deallocate(block, a_);
  pool_->drain_caches();
  pool_->maintain();
  EXPECT_EQ(fit(12 * kMiB), "after_pending");
  EXPECT_EQ(fit(12 * kMiB, b), "after_pending");
  EXPECT_EQ(fit(12 * kMiB, a), "now") << "its own work comes before what it asks for";
  EXPECT_FALSE(pool_->allocate(12 * kMiB, b_).ok());
  backend_.complete_all();
  pool_->maintain();
  EXPECT_EQ(fit(12 * kMiB), "now");
  const auto again = pool_->allocate(12 * kMiB, b_);
  ASSERT_TRUE(again.ok());
  pool_->deallocate(again.value(), b_);
  pool_->deallocate(mark, b_);
}

TEST_F(WouldFitTest, SaysWhatItIsSaidOfAndWithWhichNumbers) {
  void* const block = pool_->allocate(4 * kMiB, a_).value();
  const json answer = ask("bytes=1048576&stream=" + std::to_string(number_of(block)));
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(answer["schema"], "gpupool.would_fit");
  EXPECT_EQ(answer["version"], 1);
  EXPECT_EQ(answer["pool"], "default");
  EXPECT_EQ(answer["bytes"], kMiB);
  EXPECT_EQ(answer["stream"], number_of(block));
  EXPECT_EQ(answer["largest_satisfiable_bytes"], stats.largest_satisfiable_bytes);
  EXPECT_EQ(answer["held_bytes"], stats.held_bytes);
  EXPECT_EQ(answer["limit_in_force_bytes"], stats.limit_in_force_bytes);
  EXPECT_FALSE(ask("bytes=1").contains("stream"));
  pool_->deallocate(block, a_);
}

TEST_F(WouldFitTest, AskingChangesNothing) {
  void* const block = pool_->allocate(4 * kMiB, a_).value();
  const StatsV1 before = pool_->stats();
  for (const char* text : {"bytes=1", "bytes=1048576", "bytes=16777216", "bytes=99999999999"}) {
    ask(text);
  }
  const StatsV1 after = pool_->stats();
  EXPECT_EQ(after.requests, before.requests);
  EXPECT_EQ(after.driver_calls, before.driver_calls);
  EXPECT_EQ(after.held_bytes, before.held_bytes);
  EXPECT_EQ(after.free_runs_by_log2, before.free_runs_by_log2);
  pool_->deallocate(block, a_);
}

TEST_F(WouldFitTest, WhatIsNoQuestionIsSaidSo) {
  EXPECT_EQ(complaint(""), "parameter 'bytes' is missing");
  EXPECT_EQ(complaint("bytes=0"),
            "parameter 'bytes' is 0, which is no request; allowed is 1 and more");
  EXPECT_EQ(complaint("bytes=1GiB"), "parameter 'bytes' is '1GiB'; allowed is a whole number");
  EXPECT_EQ(complaint("bytes=1&stream=x"), "parameter 'stream' is 'x'; allowed is a whole number");
  for (const char* none : {"0", "77777777"}) {
    EXPECT_EQ(
        complaint(std::string("bytes=1&stream=") + none),
        std::string("parameter 'stream' is ") + none + "; the pool knows no stream of that number");
  }
  void* const block = pool_->allocate(512, b_).value();
  const std::uint64_t b = number_of(block);
  EXPECT_EQ(fit(512, b), "now");
  pool_->deallocate(block, b_);
  EXPECT_TRUE(pool_->release_stream(b_));
  EXPECT_NE(complaint("bytes=512&stream=" + std::to_string(b)).find("knows no stream"),
            std::string::npos);
}

TEST_F(WouldFitTest, ThePoolsSourcesHaveItAndWhoTheProcessIs) {
  const JobIdentity job{.job_id = "j7", .rank = 3, .world_size = 8};
  const Sources sources = pool_sources(*pool_, job, true);
  EXPECT_TRUE(sources.would_fit(query("bytes=1")).ok());
  const json process = json::parse(sources.stats_json())["process"];
  EXPECT_EQ(process["job_id"], "j7");
  EXPECT_EQ(process["rank"], 3);
  EXPECT_EQ(process["world_size"], 8);
  EXPECT_FALSE(process.contains("local_rank")) << "what is not known is left out";
  EXPECT_GT(process["pid"], 1);
  EXPECT_NE(process["host"], "");
  EXPECT_EQ(process["settings_hash"], settings_hash(*pool_, pool_->stats()));
}

TEST_F(WouldFitTest, PoolsOfOneSettingHaveOneHashAndOthersAnother) {
  SimulatedBackend device;
  const auto hash = [&](PoolOptions options) {
    const auto pool = make_pool(device, std::move(options));
    return settings_hash(*pool, pool->stats());
  };
  const std::string same = settings_hash(*pool_, pool_->stats());
  EXPECT_EQ(same.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(same.size(), 12u);
  EXPECT_EQ(hash({}), same);
  EXPECT_EQ(hash({.name = "other"}), same);
  EXPECT_NE(hash({.tags = {"weights"}}), same);
  EXPECT_NE(hash({.tags = {"a", "bc"}}), hash({.tags = {"ab", "c"}}));
  EXPECT_NE(hash({.watched_sizes = {kMiB}}), same);
  PoolOptions slack;
  slack.runtime.slack = 0.25;
  EXPECT_NE(hash(slack), same);
  RuntimeOptions changed = pool_->runtime_options();
  changed.thresholds.required_block_bytes = kMiB;
  ASSERT_TRUE(pool_->reconfigure(changed).ok());
  EXPECT_NE(settings_hash(*pool_, pool_->stats()), same) << "what is in force, not what was";
}

}  // namespace
}  // namespace gpupool::internal
