// The file by which a process is found: what it says, and when it is there.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "exporter/discovery/process_id.h"
#include "exporter/discovery/target_file.h"
#include "gpupool/exporter/exporter.h"
#include "gpupool/simulated_backend.h"
#include "tests/exporter/http_client.h"
#include "tests/exporter/temporary_folder.h"
#include "tests/support/kept.h"

namespace gpupool::internal {
namespace {

using testing_support::TemporaryFolder;
using Names = std::vector<std::string>;

std::string own_stem() {
  const std::string space = pid_namespace();
  return host_name() + "-" + std::to_string(getpid()) + (space.empty() ? "" : "-" + space);
}

/// The name of a file that process `pid` of this host would have.
std::string name_of(pid_t pid) {
  std::string name = own_stem() + ".json";
  const std::string own = std::to_string(getpid());
  return name.replace(name.find(own, host_name().size()), own.size(), std::to_string(pid));
}

/// Runs `work` in a child that then ends without destructors, as a crash does; gives its number.
template <class Work>
pid_t run_and_crash(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return child;
}

std::vector<FoundFile> found_in(const TemporaryFolder& folder) {
  auto files = find_target_files(folder.path());
  if (files.ok()) return std::move(files).value();
  ADD_FAILURE() << files.error().message;
  return {};
}

TEST(TargetFileTest, SaysWhereAndWhoInTheFormOfFileSd) {
  const TemporaryFolder folder;
  const JobIdentity job{
      .job_id = "run \"7\"", .rank = 12, .local_rank = 4, .world_size = 64, .group_rank = 1};
  const auto file = TargetFile::publish(
      folder.path(), {.endpoint = "10.0.0.7:10068", .host = "node1", .job = job});
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value()->path(), folder.path(own_stem() + ".json"));
  EXPECT_EQ(folder.names(), Names{own_stem() + ".json"});
  const std::string text = folder.read(own_stem() + ".json");
  EXPECT_EQ(text,
            "[{\"targets\":[\"10.0.0.7:10068\"],\"labels\":{\"job_id\":\"run \\\"7\\\"\","
            "\"rank\":\"12\",\"local_rank\":\"4\",\"world_size\":\"64\",\"group_rank\":\"1\","
            "\"host\":\"node1\",\"__meta_gpupool_process_start\":\"" +
                process_start(getpid()) + "\"}}]\n");
}

TEST(TargetFileTest, LabelsThatNobodyKnowsAreLeftOut) {
  const TemporaryFolder folder;
  const auto file = TargetFile::publish(folder.path(), {.endpoint = "h:1", .host = "h", .job = {}});
  ASSERT_TRUE(file.ok());
  EXPECT_NE(folder.read(own_stem() + ".json").find("\"labels\":{\"host\":\"h\",\"__meta"),
            std::string::npos);
}

TEST(TargetFileTest, IsGoneWithItsOwner) {
  const TemporaryFolder folder;
  {
    const auto file = TargetFile::publish(folder.path("a/b"), {.endpoint = "h:1"});
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(std::filesystem::exists(file.value()->path()));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("a/b")));
}

TEST(TargetFileTest, AForkedChildRemovesNothing) {
  const TemporaryFolder folder;
  auto file = TargetFile::publish(folder.path(), {.endpoint = "h:1"});
  ASSERT_TRUE(file.ok());
  run_and_crash([&file] { file.value().reset(); });
  EXPECT_TRUE(std::filesystem::exists(file.value()->path()));
}

TEST(TargetFileTest, WhatACrashLeavesIsStaleAndSweptByTheNextStart) {
  const TemporaryFolder folder;
  const pid_t child = run_and_crash([&folder] {
    auto file = TargetFile::publish(folder.path(), {.endpoint = "h:1"});
    if (file.ok()) static_cast<void>(file.value().release());
  });
  const auto files = found_in(folder);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].path, folder.path(name_of(child)));
  EXPECT_TRUE(files[0].is_stale);
  EXPECT_EQ(sweep(folder.path()), 1u);
  EXPECT_TRUE(folder.names().empty());
}

TEST(TargetFileTest, AProcessThatWasGivenTheNumberOfAnotherIsNotTheOther) {
  const TemporaryFolder folder;
  // Ours, by number; by its start, of somebody before us.
  auto file = TargetFile::publish(folder.path(), {.endpoint = "h:1"});
  ASSERT_TRUE(file.ok());
  std::string text = folder.read(own_stem() + ".json");
  EXPECT_FALSE(found_in(folder).at(0).is_stale);
  const std::string start = process_start(getpid());
  text.replace(text.find(start), start.size(), start + "0");
  folder.write(own_stem() + ".json", text);
  EXPECT_TRUE(found_in(folder).at(0).is_stale);
  // Of this start, on the machine as it was before it was booted again.
  text.replace(text.find(start), start.size() + 1, "another-boot/" + start);
  folder.write(own_stem() + ".json", text);
  EXPECT_EQ(sweep(folder.path()), 1u);
}

TEST(TargetFileTest, AProcessThatHasEndedAndIsNotWaitedForIsGone) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(process_start(child), "");
  EXPECT_FALSE(may_run(child, "any"));
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(may_run(child, "any"));
}

TEST(TargetFileTest, FilesOfOthersAreLeftAlone) {
  const TemporaryFolder folder;
  const std::string start = "\"__meta_gpupool_process_start\":\"boot/1\"";
  const pid_t gone = run_and_crash([] {});
  folder.write("another-host-" + std::to_string(gone) + ".json", start);
  folder.write("prometheus.json", start);
  folder.write(host_name() + "-x.json", start);
  folder.write(host_name() + ".json", start);
  folder.write(name_of(gone), "[]");  // it does not say when its process began
  folder.write(name_of(gone) + ".bak", start);
  ASSERT_EQ(mkdir(folder.path("folder.json").c_str(), S_IRWXU), 0);
  EXPECT_EQ(sweep(folder.path()), 0u);
  EXPECT_EQ(folder.names().size(), 7u);
}

TEST(TargetFileTest, WhatWasHalfWrittenIsSweptOnceItsProcessIsGone) {
  const TemporaryFolder folder;
  const pid_t gone = run_and_crash([] {});
  folder.write("." + name_of(gone) + ".tmp", "[{");
  folder.write("." + own_stem() + ".json.tmp", "[{");
  sweep(folder.path());
  EXPECT_EQ(folder.names(), Names{"." + own_stem() + ".json.tmp"});
  EXPECT_TRUE(found_in(folder).empty());
}

TEST(TargetFileTest, AFileThatCameMeanwhileIsNotRemovedForTheOneBefore) {
  const TemporaryFolder folder;
  folder.write("a.json", "[1]");
  FoundFile seen{.path = folder.path("a.json"), .text = "[]", .is_stale = true};
  EXPECT_FALSE(remove_stale(seen));
  EXPECT_EQ(folder.read("a.json"), "[1]");
  seen.text = "[1]";
  EXPECT_TRUE(remove_stale(seen));
}

TEST(TargetFileTest, ReadersNeverSeeHalfAFile) {
  const TemporaryFolder folder;
  std::jthread writer([&folder](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      auto file = TargetFile::publish(folder.path(), {.endpoint = "h:1", .host = "h"});
      EXPECT_TRUE(file.ok());
    }
  });
  std::size_t seen = 0;
  for (int i = 0; i < 2'000 || seen == 0; ++i) {
    for (const FoundFile& file : found_in(folder)) {
      ++seen;
      EXPECT_TRUE(file.text.starts_with("[{") && file.text.ends_with("}]\n")) << file.text;
    }
  }
}

TEST(TargetFileTest, AFolderThatEverybodyMayWriteToIsRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), S_IRWXU | S_IRWXG | S_IRWXO), 0);
  const auto refused = TargetFile::publish(folder.path(), {.endpoint = "h:1"});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find(folder.path()), std::string::npos);
  ASSERT_EQ(chmod(folder.path().c_str(), S_IRWXU | S_IRWXG | S_IRWXO | S_ISVTX), 0);
  EXPECT_TRUE(TargetFile::publish(folder.path(), {.endpoint = "h:1"}).ok());
}

TEST(TargetFileTest, ALinkInItsPlaceIsNotFollowed) {
  const TemporaryFolder folder;
  folder.write("victim", "mine");
  std::filesystem::create_symlink("victim", folder.path("." + own_stem() + ".json.tmp"));
  EXPECT_TRUE(TargetFile::publish(folder.path(), {.endpoint = "h:1"}).ok());
  EXPECT_EQ(folder.read("victim"), "mine");
}

TEST(TargetFileTest, AJobsFolderIsNoOtherFolder) {
  const auto expanded = [](const std::string& job_id) {
    return expand_directory("/run/{uid}/{job_id}", {.job_id = job_id});
  };
  const std::string start = "/run/" + std::to_string(getuid()) + "/";
  EXPECT_EQ(expanded("4711"), start + "4711");
  EXPECT_EQ(expanded(""), start + "no-job");
  EXPECT_EQ(expanded(".."), start + "_.");
  EXPECT_EQ(expanded("../../etc"), start + "_._.._etc");
  EXPECT_EQ(expanded("{job_id}"), start + "_job_id_");
}

class DiscoveryTest : public testing::Test {
 protected:
  void SetUp() override {
    auto created = Pool::create(device_, {});
    ASSERT_TRUE(created.ok());
    pool_ = &testing_support::keep(std::move(created).value());
  }

  Result<std::unique_ptr<Exporter>, Status> start(const std::string& directory) {
    ExporterOptions options{.port = 0, .job = {.id = "run-7", .rank = 3}};
    options.discovery.directory = directory;
    options.log = [this](const std::string& line) { log_.push_back(line); };
    return Exporter::start(*pool_, options, std::chrono::milliseconds(0));
  }

  /// Stopping takes up to 2 s: it is left to run where that is not what is tested.
  static Exporter& leave_running(std::unique_ptr<Exporter> exporter) {
    return testing_support::keep(std::move(exporter));
  }

  // For as long as those run.
  SimulatedBackend& device_ = testing_support::keep(std::make_unique<SimulatedBackend>(
      SimulatedDeviceOptions{.capacity_bytes = std::uint64_t{1} << 30}));
  Pool* pool_ = nullptr;
  std::vector<std::string> log_;
};

TEST_F(DiscoveryTest, AnExporterIsFoundWhileItServes) {
  const TemporaryFolder folder;
  auto started = start(folder.path("{job_id}"));
  ASSERT_TRUE(started.ok());
  Exporter& exporter = leave_running(std::move(started).value());
  const std::string text = folder.read("run-7/" + own_stem() + ".json");
  const std::string endpoint = "127.0.0.1:" + std::to_string(exporter.port());
  EXPECT_NE(text.find("[\"" + endpoint + "\"]"), std::string::npos) << text;
  EXPECT_NE(text.find("\"job_id\":\"run-7\",\"rank\":\"3\""), std::string::npos) << text;
  // The same names in what it exports.
  const std::string page = testing_support::fetch(exporter.port(), "/metrics").body;
  EXPECT_NE(page.find(",rank=\"3\""), std::string::npos);
  EXPECT_NE(page.find(",job_id=\"run-7\"} 1"), std::string::npos);

  exporter.retire();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("run-7")));
  EXPECT_EQ(testing_support::fetch(exporter.port(), "/-/ready").status, 503);
  EXPECT_EQ(testing_support::fetch(exporter.port(), "/-/healthy").status, 200);
  EXPECT_TRUE(log_.empty());
}

TEST_F(DiscoveryTest, IsGoneAfterStopAndAfterItsEndAndNotByAChild) {
  const TemporaryFolder folder;
  auto exporter = start(folder.path());
  ASSERT_TRUE(exporter.ok());
  run_and_crash([&exporter] {
    exporter.value()->retire();
    exporter.value()->stop();
    exporter.value().reset();
  });
  EXPECT_EQ(folder.names().size(), 1u);
  exporter.value().reset();
  EXPECT_TRUE(folder.names().empty());
}

TEST_F(DiscoveryTest, WhereTheFolderCannotBeHadItServesAllTheSame) {
  const TemporaryFolder folder;
  folder.write("file", "");
  auto started = start(folder.path("file/below"));
  ASSERT_TRUE(started.ok());
  Exporter& exporter = leave_running(std::move(started).value());
  EXPECT_EQ(testing_support::fetch(exporter.port(), "/metrics").status, 200);
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_NE(log_[0].find(folder.path("file/below")), std::string::npos) << log_[0];
}

}  // namespace
}  // namespace gpupool::internal
