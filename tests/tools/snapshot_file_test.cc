// Saved snapshots: what a pool's exporter answers is read back with its numbers, and whatever is
// not one is told in a line.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "exporter/http/snapshot_json.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"
#include "tools/snapshot/file.h"
#include "tools/snapshot/report.h"

namespace gpupool::tools {
namespace {

using nlohmann::json;

/// Three blocks of 8 MiB, the middle one of which is freed.
std::string a_snapshot() {
  SimulatedBackend backend;
  PoolOptions options;
  options.capacity = 64 * kMiB;
  options.cache_large_bytes = 0;
  auto pool = Pool::create(backend, std::move(options)).value();
  void* blocks[3];
  for (void*& block : blocks) block = pool->allocate(8 * kMiB, RawStream()).value();
  EXPECT_TRUE(pool->deallocate(blocks[1], RawStream()));
  pool->drain_caches();
  std::string text = internal::snapshot_json(*pool, 7, true);
  pool->deallocate(blocks[0], RawStream());
  pool->deallocate(blocks[2], RawStream());
  return text;
}

std::string error_of(const json& changed) {
  const auto file = parse_snapshot("f.json", changed.dump());
  return file.ok() ? "taken" : file.error().message;
}

TEST(SnapshotFile, IsReadBackWithItsNumbers) {
  const std::string text = a_snapshot();
  const auto file = parse_snapshot("some/folder/f.json", text);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const json was = json::parse(text);
  EXPECT_EQ(file.value().name, "f.json");
  EXPECT_EQ(file.value().held_bytes, was.at("arena").at("held_bytes"));
  EXPECT_EQ(file.value().states.at(0).bytes, 16 * kMiB);
  EXPECT_EQ(file.value().tags.back().name, "untagged");
  EXPECT_EQ(file.value().tags.back().bytes, 16 * kMiB);
  EXPECT_FALSE(file.value().has_counters);
  EXPECT_EQ(json::parse(file.value().snapshot_json), was);
  const json stats = json::parse(file.value().stats_json).at("stats");
  EXPECT_EQ(stats.at("live_requested_bytes"), 16 * kMiB);
  EXPECT_EQ(stats.at("largest_satisfiable_bytes"), was.at("arena").at("largest_satisfiable_bytes"));
  const std::uint64_t parts =
      stats.at("live_requested_bytes").get<std::uint64_t>() +
      stats.at("waste_bytes").get<std::uint64_t>() + stats.at("cached_bytes").get<std::uint64_t>() +
      stats.at("pending_bytes").get<std::uint64_t>() + stats.at("free_bytes").get<std::uint64_t>();
  EXPECT_EQ(parts, file.value().held_bytes);
}

TEST(SnapshotFile, TheSummarySaysWhatIsFreeAndWhoHasTheRest) {
  const auto file = parse_snapshot("f.json", a_snapshot());
  const std::string text = to_text(file.value(), Terminal());
  for (const char* part : {"largest free block", "fragmentation", "live", "free", "untagged",
                           "16.0 MiB", "pool default"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(utc_text(1772366400123), "2026-03-01 12:00:00 UTC");
}

TEST(SnapshotFile, WhatIsNoneIsToldInALine) {
  EXPECT_EQ(parse_snapshot("f", "").error().message, "f: no JSON, or not all of it");
  const std::string text = a_snapshot();
  EXPECT_FALSE(parse_snapshot("f", text.substr(0, text.size() / 2)).ok());
  EXPECT_NE(parse_snapshot("f", "\x80\x02}").error().message.find("convert_snapshot"),
            std::string::npos);
  EXPECT_EQ(error_of(json::array()), "f.json: no snapshot of gpupool: it has no schema");
  json other = json::parse(text);
  other["schema"] = "gpupool.stats";
  EXPECT_EQ(error_of(other),
            "f.json: its schema is 'gpupool.stats', not gpupool.snapshot or gpupool.page");
  other = json::parse(text);
  other["version"] = 2;
  EXPECT_EQ(error_of(other),
            "f.json: its version is 2 of gpupool.snapshot; this program reads version 1");
}

TEST(SnapshotFile, WhatIsMissingOrAmissIsNamed) {
  const json whole = json::parse(a_snapshot());
  // Every field of the first two levels that is read: without it, and with another kind of value.
  int tried = 0;
  for (const char* path : {"/pool",
                           "/time_ms",
                           "/arena/held_bytes",
                           "/arena/backing",
                           "/arena/largest_satisfiable_bytes",
                           "/arena/fragmentation_ratio",
                           "/pages/bytes",
                           "/pages/mapped",
                           "/runs/free_by_log2",
                           "/states",
                           "/tiers",
                           "/tags",
                           "/streams",
                           "/blocks",
                           "/blocks/shown",
                           "/blocks/bytes",
                           "/blocks/state",
                           "/blocks/tag",
                           "/blocks/age_ms",
                           "/fallbacks"}) {
    const json::json_pointer pointer(path);
    json without = whole;
    without[pointer.parent_pointer()].erase(pointer.back());
    EXPECT_NE(error_of(without).find(" is missing"), std::string::npos) << path;
    json other = whole;
    other[pointer] = true;
    EXPECT_EQ(error_of(other).find("f.json: "), 0U) << path << ": " << error_of(other);
    ++tried;
  }
  EXPECT_EQ(tried, 20);
  json shorter = whole;
  shorter["blocks"]["bytes"].erase(0);
  EXPECT_NE(error_of(shorter).find("blocks.bytes has"), std::string::npos);
  json beyond = whole;
  beyond["blocks"]["tag"][0] = 1000;
  EXPECT_EQ(error_of(beyond), "f.json: blocks.tag[0] is of nothing there");
  json negative = whole;
  negative["blocks"]["bytes"][0] = -1;
  EXPECT_EQ(error_of(negative), "f.json: blocks.bytes[0] is no whole number from 0");
  json letter = whole;
  letter["blocks"]["state"] = std::string(whole["blocks"]["shown"], 'x');
  EXPECT_EQ(error_of(letter), "f.json: blocks.state is of nothing there");
}

}  // namespace
}  // namespace gpupool::tools
