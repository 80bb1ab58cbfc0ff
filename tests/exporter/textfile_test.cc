// The file that a job leaves for node_exporter.
#include "exporter/metrics/textfile.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "gpupool/exporter/exporter.h"
#include "gpupool/simulated_backend.h"
#include "tests/exporter/metrics_page.h"
#include "tests/exporter/promtool.h"

namespace gpupool::internal {
namespace {

using testing_support::parse_page;

constexpr std::chrono::hours kForever{1};

std::vector<prometheus::MetricFamily> one_family() {
  prometheus::MetricFamily family;
  family.name = "gpupool_test_bytes";
  family.help = "A test.";
  family.type = prometheus::MetricType::Gauge;
  family.metric.resize(1);
  family.metric[0].label.push_back({"device", "0"});
  family.metric[0].gauge.value = 12;
  return {family};
}

class TextfileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "job.prom") const { return (folder_ / name).string(); }
  static std::string content(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("gpupool-textfile-" + std::to_string(getpid()));
};

TEST_F(TextfileTest, IsWholeAndReadableForOthersAndAlone) {
  const Textfile textfile(path(), one_family, {});
  ASSERT_TRUE(textfile.check().ok());
  EXPECT_EQ(files(), 0u) << "a check leaves nothing";
  ASSERT_TRUE(textfile.write(kForever).ok());
  ASSERT_TRUE(textfile.write(kForever).ok());
  EXPECT_EQ(files(), 1u);
  EXPECT_TRUE(content(path()).starts_with(
      "# HELP gpupool_test_bytes A test.\n# TYPE gpupool_test_bytes gauge\n"
      "gpupool_test_bytes{device=\"0\"} 12\n"))
      << content(path());
  EXPECT_EQ(testing_support::check_metrics(content(path())), "");
  struct stat there {};
  ASSERT_EQ(stat(path().c_str(), &there), 0);
  EXPECT_NE(there.st_mode & S_IROTH, 0u);
}

TEST_F(TextfileTest, SeriesOfSeveralRanksDoNotCollide) {
  const Textfile textfile(path("r{rank}-l{local_rank}-{pid}.prom"), one_family,
                          {.job_id = "4711", .rank = 17, .local_rank = 1, .world_size = 64});
  EXPECT_EQ(textfile.path(), path("r17-l1-" + std::to_string(getpid()) + ".prom"));
  ASSERT_TRUE(textfile.write(kForever).ok());
  EXPECT_NE(content(textfile.path())
                .find("gpupool_test_bytes{device=\"0\",rank=\"17\",job_id=\"4711\"} 12\n"),
            std::string::npos);
  EXPECT_EQ(Textfile(path("{rank}.prom"), one_family, {}).path(), path("0.prom"));
}

TEST_F(TextfileTest, SaysFromWhenOnItIsNoLongerSo) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const Textfile textfile(path(), one_family, {.job_id = "4711", .rank = 3});
  const std::string series = R"(gpupool_textfile_end_time_seconds{rank="3",job_id="4711"})";
  for (const int seconds : {0, 120}) {
    const double before = now();
    ASSERT_TRUE(textfile.write(std::chrono::seconds(seconds)).ok());
    const double end = parse_page(content(path())).at(series);
    EXPECT_GE(end, before + seconds - 1e-3);
    EXPECT_LE(end, now() + seconds + 1e-3);
  }
}

TEST_F(TextfileTest, PathsThatNobodyWouldReadAreRefused) {
  const auto problem = [](const std::string& path) {
    const auto checked = Textfile(path, one_family, {}).check();
    return checked.ok() ? std::string() : checked.error().message;
  };
  EXPECT_EQ(problem("job.prom"),
            "exporter.textfile: job.prom: is no absolute path: begin it with /");
  EXPECT_NE(problem("./job.prom").find("no absolute path"), std::string::npos);
  for (const char* name : {"job", "job.txt", "job.prom.tmp", ".prom", "job.prom/"}) {
    EXPECT_NE(problem(path(name)).find("does not end in a name with .prom"), std::string::npos)
        << name;
  }
  EXPECT_EQ(problem(path("a.prom")), "");
  EXPECT_EQ(files(), 0u);
}

// A folder that others may write to: what they link there is not written through.
TEST_F(TextfileTest, SymbolicLinksAreNotFollowed) {
  const std::string victim = path("victim");
  std::ofstream(victim) << "keep";
  const std::string beside = path() + "." + std::to_string(getpid()) + ".tmp";
  const Textfile textfile(path(), one_family, {});
  for (const bool is_hard : {false, true}) {
    is_hard ? std::filesystem::create_hard_link(victim, beside)
            : std::filesystem::create_symlink(victim, beside);
    ASSERT_TRUE(textfile.check().ok());
    EXPECT_EQ(content(victim), "keep");
    is_hard ? std::filesystem::create_hard_link(victim, beside)
            : std::filesystem::create_symlink(victim, beside);
    ASSERT_TRUE(textfile.write(kForever).ok());
    EXPECT_EQ(content(victim), "keep");
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(beside)));
  }
  std::filesystem::remove(path());
  std::filesystem::create_symlink(victim, path());
  EXPECT_EQ(textfile.check().error().message,
            "exporter.textfile: " + path() + ": is a symbolic link: name the file itself");
  ASSERT_TRUE(textfile.write(kForever).ok()) << "one that came later is replaced";
  EXPECT_FALSE(std::filesystem::is_symlink(path()));
  EXPECT_EQ(content(victim), "keep");
}

TEST_F(TextfileTest, WhatCannotBeWrittenIsSaidAndNothingIsLeft) {
  const Textfile nowhere(path("no/such/job.prom"), one_family, {});
  EXPECT_EQ(nowhere.check().error().message,
            "exporter.textfile: " + path("no/such/job.prom") + ": No such file or directory");
  EXPECT_FALSE(nowhere.write(kForever).ok());
  std::filesystem::create_directory(path("folder.prom"));
  EXPECT_FALSE(Textfile(path("folder.prom"), one_family, {}).check().ok());
  EXPECT_FALSE(Textfile(path("folder.prom"), one_family, {}).write(kForever).ok());
  EXPECT_EQ(files(), 1u);
  std::ofstream(path()) << "old";
  const Textfile broken(
      path(), []() -> std::vector<prometheus::MetricFamily> { throw std::runtime_error("broken"); },
      {});
  EXPECT_FALSE(broken.write(kForever).ok());
  EXPECT_EQ(content(path()), "old");
  EXPECT_EQ(files(), 2u);
}

TEST_F(TextfileTest, AReaderNeverSeesHalfAFile) {
  const Textfile textfile(path(), one_family, {});
  ASSERT_TRUE(textfile.write(kForever).ok());
  // The end time stands last, and is another one each time.
  const auto is_whole = [](const std::string& text) {
    return text.starts_with("# HELP gpupool_test_bytes") && text.ends_with("\n") &&
           text.find("\ngpupool_textfile_end_time_seconds ") != std::string::npos;
  };
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    while (!is_over) EXPECT_TRUE(textfile.write(kForever).ok());
  });
  for (int i = 0; i < 500; ++i) EXPECT_TRUE(is_whole(content(path())));
  is_over = true;
  writer.join();
}

class ExporterTextfileTest : public TextfileTest {
 protected:
  SimulatedBackend backend_{{.capacity_bytes = std::uint64_t{1} << 30}};
  std::unique_ptr<Pool> pool_ = Pool::create(backend_, {}).value();
};

TEST_F(ExporterTextfileTest, IsWrittenWhenTheExporterStopsAlsoWithoutAServer) {
  auto exporter = Exporter::start(*pool_, {.enabled = false, .textfile = path()}).value();
  EXPECT_TRUE(pool_->allocate(5000, RawStream{}).ok());
  EXPECT_EQ(files(), 0u);
  exporter->stop();
  EXPECT_EQ(testing_support::check_metrics(content(path())), "");
  const auto page = parse_page(content(path()));
  std::size_t series = 0;
  for (const auto& [name, value] : page) {
    if (!name.starts_with("gpupool_requested_bytes{")) continue;
    ++series;
    EXPECT_EQ(value, 5000);
  }
  EXPECT_EQ(series, 1u);
  EXPECT_LE(page.at("gpupool_textfile_end_time_seconds"), static_cast<double>(time(nullptr)) + 1)
      << "the process has ended";
  std::filesystem::remove(path());
  exporter->stop();
  EXPECT_EQ(files(), 0u) << "once";
}

TEST_F(ExporterTextfileTest, IsWrittenAgainAndAgainWhereThatIsAskedFor) {
  auto exporter = Exporter::start(
      *pool_, {.enabled = false, .textfile = path(), .textfile_every_ns = 1'000'000});
  ASSERT_TRUE(exporter.ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  int written = 0;
  while (written < 3 && std::chrono::steady_clock::now() < deadline) {
    if (std::filesystem::remove(path())) ++written;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(written, 3);
}

TEST_F(ExporterTextfileTest, AFolderThatIsNotThereIsAnErrorAtTheStart) {
  const auto exporter = Exporter::start(*pool_, {.enabled = false, .textfile = "/no/such.prom"});
  ASSERT_FALSE(exporter.ok());
  EXPECT_EQ(exporter.error().message,
            "exporter.textfile: /no/such.prom: No such file or directory");
}

}  // namespace
}  // namespace gpupool::internal
