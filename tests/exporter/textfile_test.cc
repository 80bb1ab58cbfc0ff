// The file that a job leaves for node_exporter.
#include "exporter/metrics/textfile.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
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
  ASSERT_TRUE(textfile.write().ok());
  ASSERT_TRUE(textfile.write().ok());
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(content(path()),
            "# HELP gpupool_test_bytes A test.\n# TYPE gpupool_test_bytes gauge\n"
            "gpupool_test_bytes{device=\"0\"} 12\n");
  struct stat there {};
  ASSERT_EQ(stat(path().c_str(), &there), 0);
  EXPECT_NE(there.st_mode & S_IROTH, 0u);
}

TEST_F(TextfileTest, SeriesOfSeveralRanksDoNotCollide) {
  const Textfile textfile(path("r{rank}-l{local_rank}-{pid}.prom"), one_family,
                          {.job_id = "4711", .rank = 17, .local_rank = 1, .world_size = 64});
  EXPECT_EQ(textfile.path(), path("r17-l1-" + std::to_string(getpid()) + ".prom"));
  ASSERT_TRUE(textfile.write().ok());
  EXPECT_NE(content(textfile.path())
                .find("gpupool_test_bytes{device=\"0\",rank=\"17\",job_id=\"4711\"} 12\n"),
            std::string::npos);
  EXPECT_EQ(Textfile(path("{rank}.prom"), one_family, {}).path(), path("0.prom"));
}

TEST_F(TextfileTest, WhatCannotBeWrittenIsSaidAndNothingIsLeft) {
  const Textfile nowhere(path("no/such/job.prom"), one_family, {});
  EXPECT_EQ(nowhere.check().error().message,
            "exporter.textfile: " + path("no/such/job.prom") + ": No such file or directory");
  EXPECT_FALSE(nowhere.write().ok());
  std::filesystem::create_directory(path("folder"));
  EXPECT_FALSE(Textfile(path("folder"), one_family, {}).check().ok());
  EXPECT_FALSE(Textfile(path("folder"), one_family, {}).write().ok());
  EXPECT_EQ(files(), 1u);
  std::ofstream(path()) << "old";
  const Textfile broken(
      path(), []() -> std::vector<prometheus::MetricFamily> { throw std::runtime_error("broken"); },
      {});
  EXPECT_FALSE(broken.write().ok());
  EXPECT_EQ(content(path()), "old");
  EXPECT_EQ(files(), 2u);
}

TEST_F(TextfileTest, AReaderNeverSeesHalfAFile) {
  const Textfile textfile(path(), one_family, {});
  ASSERT_TRUE(textfile.write().ok());
  const std::string whole = content(path());
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    while (!is_over) EXPECT_TRUE(textfile.write().ok());
  });
  for (int i = 0; i < 500; ++i) EXPECT_EQ(content(path()), whole);
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
