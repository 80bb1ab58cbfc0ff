// The map as JSON: that it is the pool's, that nobody has to wait for it, and how long it takes.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "exporter/http/compression.h"
#include "exporter/http/snapshot_cache.h"
#include "exporter/http/snapshot_json.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool::internal {
namespace {

using nlohmann::json;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr double kMaxMilliseconds = 1000;
#else
constexpr double kMaxMilliseconds = 20;
#endif

class SnapshotTest : public testing::Test {
 protected:
  void SetUp() override {
    PoolOptions options;
    options.tags = {"weights", "gradients"};
    options.on_misuse = OnMisuse::abort;
    options.clock = &clock_;
    pool_ = Pool::create(backend_, options).value();
    stream_ = pool_->adopt_stream(backend_.create_stream()).value();
  }
  void* allocate(std::uint64_t bytes, Tag tag = kUntagged) {
    return pool_->allocate({.bytes = bytes, .tag = tag}, stream_).value();
  }
  json snapshot(bool with_details = true) const {
    return json::parse(snapshot_json(*pool_, 7, with_details));
  }

  VirtualClock clock_;
  SimulatedBackend backend_{{.capacity_bytes = 140 * kGiB}};
  std::unique_ptr<Pool> pool_;
  StreamRef stream_;
};

TEST_F(SnapshotTest, ShowsEveryBlockWithItsNumbers) {
  const Tag gradients = pool_->find_tag("gradients").value();
  const auto run = reinterpret_cast<std::uint64_t>(allocate(3 * kMiB, gradients));
  const auto slot = reinterpret_cast<std::uint64_t>(allocate(700));
  void* const cached = allocate(kMiB);
  clock_.advance_ns(5'000'000'000);
  pool_->maintain();
  pool_->deallocate(cached, stream_);
  AllocationRequest request;
  request.bytes = 999;
  request.allocation_class = AllocationClass::contiguous;
  const auto fallback = reinterpret_cast<std::uint64_t>(pool_->allocate(request, stream_).value());

  const json map = snapshot();
  EXPECT_EQ(map["schema"], "gpupool.snapshot");
  EXPECT_EQ(map["version"], 1);
  EXPECT_EQ(map["sequence"], 7);
  EXPECT_EQ(map["pool"], "default");
  const json& blocks = map["blocks"];
  const std::uint64_t base = map["arena"]["base_address"];
  const std::size_t count = blocks["count"];
  EXPECT_EQ(blocks["shown"], count);
  std::uint64_t bytes = 0;
  bool has_run = false;
  bool has_slot = false;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t address = base + blocks["offset"][i].get<std::uint64_t>();
    const std::size_t state = blocks["state"].get<std::string>().at(i) - '0';
    const std::size_t tier = blocks["tier"].get<std::string>().at(i) - '0';
    bytes += blocks["bytes"][i].get<std::uint64_t>();
    if (address == run) {
      has_run = true;
      EXPECT_EQ(blocks["bytes"][i], 3 * kMiB);
      EXPECT_EQ(blocks["requested"][i], 3 * kMiB);
      EXPECT_EQ(map["states"][state]["name"], "live");
      EXPECT_EQ(map["tiers"][tier], "run");
      EXPECT_EQ(map["tags"][blocks["tag"][i].get<std::size_t>()]["name"], "gradients");
      EXPECT_NEAR(blocks["age_ms"][i].get<double>(), 5000, 1100);
    } else if (address == slot) {
      has_slot = true;
      EXPECT_EQ(blocks["requested"][i], 700);
      EXPECT_EQ(map["tiers"][tier], "size_class");
      EXPECT_EQ(map["tags"][blocks["tag"][i].get<std::size_t>()]["name"], "untagged");
    }
  }
  EXPECT_TRUE(has_run && has_slot);
  EXPECT_EQ(map["fallbacks"]["count"], 1);
  EXPECT_EQ(map["fallbacks"]["address"][0], fallback);
  EXPECT_EQ(map["fallbacks"]["requested"][0], 999);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(bytes + stats.fallback_bytes, stats.held_bytes);
  EXPECT_EQ(map["arena"]["held_bytes"], stats.held_bytes);
  EXPECT_EQ(map["pages"]["bytes"], 2 * kMiB);
  EXPECT_EQ(map["pages"]["mapped"].get<std::uint64_t>() * 2 * kMiB,
            stats.held_bytes - stats.fallback_bytes);
  EXPECT_EQ(map["tags"][1]["live_requested_bytes"], 3 * kMiB);
  EXPECT_EQ(map["runs"]["free_by_log2"].size(), kSizeLog2Count);
  std::uint64_t live = 0;
  for (const json& stream : map["streams"]) live += stream["live_bytes"].get<std::uint64_t>();
  EXPECT_EQ(live, map["states"][0]["bytes"]);
}

TEST_F(SnapshotTest, StreamsHaveTheHandleThatAProgramKnowsThemBy) {
  const RawStream raw = backend_.create_stream();
  ASSERT_TRUE(pool_->allocate(3 * kMiB, raw).ok());
  std::ostringstream handle;
  handle << "0x" << std::hex << reinterpret_cast<std::uintptr_t>(raw);
  EXPECT_EQ(snapshot()["streams"][0]["handle"], handle.str());
}

TEST_F(SnapshotTest, EmptyPagesAreThoseWithNothingInThem) {
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocate(2 * kMiB));
  EXPECT_EQ(snapshot()["pages"]["mapped"], 8);
  EXPECT_EQ(snapshot()["pages"]["empty"], 0);
  for (int i = 0; i < 3; ++i) pool_->deallocate(blocks[static_cast<std::size_t>(2 * i)], stream_);
  EXPECT_EQ(snapshot()["pages"]["empty"], 0) << "cached is in use";
  pool_->drain_caches();
  EXPECT_EQ(snapshot()["pages"]["mapped"], 8);
  EXPECT_EQ(snapshot()["pages"]["empty"], 3);
}

TEST_F(SnapshotTest, WithoutDetailsThereAreNoAddressesAndNoTags) {
  const auto block = std::to_string(reinterpret_cast<std::uint64_t>(allocate(3 * kMiB, Tag(0))));
  AllocationRequest request;
  request.bytes = 999;
  request.allocation_class = AllocationClass::contiguous;
  const auto fallback =
      std::to_string(reinterpret_cast<std::uint64_t>(pool_->allocate(request, stream_).value()));
  for (const bool with_details : {true, false}) {
    const std::string text = snapshot_json(*pool_, 1, with_details);
    for (const std::string& secret : {block, fallback, std::string("weights")}) {
      EXPECT_EQ(text.find(secret) != std::string::npos, with_details) << secret;
    }
    EXPECT_EQ(json::parse(text)["blocks"]["bytes"][0], 3 * kMiB);
  }
}

TEST_F(SnapshotTest, AnUnusedPoolHasAnEmptyMap) {
  const json map = snapshot();
  EXPECT_EQ(map["blocks"]["count"], 0);
  EXPECT_EQ(map["pages"]["mapped"], 0);
  EXPECT_EQ(map["pages"]["empty"], 0);
  EXPECT_TRUE(map["blocks"]["offset"].empty());
}

/// Of this thread, so that what others do on the machine counts as little as may be.
double cpu_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

TEST_F(SnapshotTest, AHundredThousandBlocksTakeTwentyMilliseconds) {
  // Blocks of all tiers; one in three is freed, so that there are free pieces between them.
  std::vector<void*> blocks;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    blocks.push_back(allocate(i % 2 == 0 ? 512 + i % 8 * kKiB : (i % 4 == 1 ? 64 : 256) * kKiB));
  }
  for (std::size_t i = 0; i < blocks.size(); i += 3) pool_->deallocate(blocks[i], stream_);
  pool_->drain_caches();
  double best = 1e9;
  std::string text;
  // The best of some seconds: a core that is shared is slower while it is.
  for (int i = 0; i < 7 || (best > kMaxMilliseconds && i < 300); ++i) {
    const double start = cpu_milliseconds();
    text = snapshot_json(*pool_, 1, true);
    best = std::min(best, cpu_milliseconds() - start);
  }
  const double start = cpu_milliseconds();
  const auto packed = gzip(text);
  const double packing = cpu_milliseconds() - start;
  ASSERT_TRUE(packed.has_value());
  const json map = json::parse(text);
  std::printf(
      "  a map of %d blocks and free pieces: %.1f ms, %.2f MB; packed in %.1f ms, %.2f MB\n",
      map["blocks"]["count"].get<int>(), best, static_cast<double>(text.size()) / 1e6, packing,
      static_cast<double>(packed->size()) / 1e6);
  EXPECT_GE(map["blocks"]["count"], 90'000);
  EXPECT_LE(best, kMaxMilliseconds);
}

TEST_F(SnapshotTest, BeyondTheMostThatIsShownBlocksAreOnlyCounted) {
  for (std::size_t i = 0; i < kMaxBlocksShown + 1'000; ++i) allocate(512);
  const json map = snapshot();
  EXPECT_EQ(map["blocks"]["shown"], kMaxBlocksShown);
  EXPECT_EQ(map["blocks"]["offset"].size(), kMaxBlocksShown);
  EXPECT_GE(map["blocks"]["count"], kMaxBlocksShown + 1'000);
  EXPECT_EQ(map["states"][0]["blocks"], kMaxBlocksShown + 1'000);
}

TEST(SnapshotCacheTest, ServesOneCopyForHalfASecond) {
  VirtualClock clock;
  int made = 0;
  SnapshotCache cache(
      [&](std::uint64_t sequence) {
        ++made;
        return std::string(10'000, static_cast<char>('a' + sequence));
      },
      "boot", clock);
  const Document first = cache.get(false);
  EXPECT_EQ(first.version, "boot-1");
  EXPECT_EQ(first.packed_body, "");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(cache.get(true).body, first.body);
  EXPECT_NE(cache.get(true).packed_body, "");
  clock.advance_ns(SnapshotCache::kLifetimeNs - 1);
  EXPECT_EQ(cache.get(false).version, "boot-1");
  clock.advance_ns(1);
  const Document second = cache.get(false);
  EXPECT_EQ(second.version, "boot-2");
  EXPECT_NE(second.body, first.body);
  EXPECT_EQ(second.packed_body, "");
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace gpupool::internal
