// What needs a process of its own: configurations, forks and ends. Each statement runs in a child
// that begins anew.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/integrations/plugin.h"
#include "tests/support/units.h"

namespace gpupool::testing {
namespace {

class PluginProcessTest : public ::testing::Test {
 protected:
  PluginProcessTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~PluginProcessTest() override { std::filesystem::remove(path_); }

  const std::string& write_config(const std::string& yaml) {
    std::ofstream(path_) << yaml;
    return path_;
  }

  // The name is the same in the child, which runs the test's beginning, too.
  const std::string path_ = ::testing::TempDir() + "gpupool_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                            ".yaml";
};

/// Says on standard error what happens to a request, and ends the child.
[[noreturn]] void allocate_and_leave(const Plugin& plugin) {
  try {
    void* const block = plugin.alloc(kMiB, 0);
    std::fprintf(stderr, "allocated, limit %llu\n",
                 static_cast<unsigned long long>(plugin.stats(0).limit_bytes));
    plugin.free(block, kMiB, 0);
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "thrown: %s\n", error.what());
  }
  std::_Exit(0);
}

TEST_F(PluginProcessTest, TheFileThatIsNamedCounts) {
  const std::string path = write_config("pool: {capacity: 64MiB}\nexporter: {enabled: false}\n");
  EXPECT_EXIT(
      {
        const Plugin plugin;
        if (plugin.configure(path.c_str()) != GPUPOOL_OK) std::_Exit(1);
        if (plugin.configure(path.c_str()) != GPUPOOL_OK) std::_Exit(2);
        if (plugin.configure("/another.yaml") == GPUPOOL_OK) std::_Exit(3);
        std::fprintf(stderr, "%s\n", plugin.last_error().c_str());
        allocate_and_leave(plugin);
      },
      ::testing::ExitedWithCode(0), "already configured by .*allocated, limit 67108864");
}

TEST_F(PluginProcessTest, TheEnvironmentNamesTheFileWhereNobodyElseDoes) {
  const std::string path = write_config("pool: {capacity: 32MiB}\nexporter: {enabled: false}\n");
  EXPECT_EXIT(
      {
        setenv("GPUPOOL_CONFIG", path.c_str(), 1);
        const Plugin plugin;
        allocate_and_leave(plugin);
      },
      ::testing::ExitedWithCode(0), "allocated, limit 33554432");
}

TEST_F(PluginProcessTest, AWrongFileStopsByDefault) {
  const std::string path = write_config("pool:\n  capacity: 64 MB of it\n  recycled: eager\n");
  EXPECT_EXIT(
      {
        setenv("GPUPOOL_CONFIG", path.c_str(), 1);
        const Plugin plugin;
        allocate_and_leave(plugin);
      },
      ::testing::ExitedWithCode(0),
      "thrown: gpupool: the configuration is wrong: .*:2: pool.capacity: .*:3: pool.recycled: ");
}

TEST_F(PluginProcessTest, AWrongFileThatSaysSoGoesOnWithTheDefaultsAfterOneLine) {
  const std::string path = write_config(
      "torch:\n  on_config_error: defaults\npool:\n  capacity: 64 MB of it\nexporter: nothing\n");
  EXPECT_EXIT(
      {
        setenv("GPUPOOL_CONFIG", path.c_str(), 1);
        const Plugin plugin;
        allocate_and_leave(plugin);
      },
      ::testing::ExitedWithCode(0),
      "^gpupool: the configuration is wrong, going on with the defaults: "
      "[^\n]*pool.capacity[^\n]*\n"
      "allocated, limit 150323855360\n$");
}

TEST_F(PluginProcessTest, AWrongFileSaysSoInFlowStyleToo) {
  const std::string path =
      write_config("torch: {on_config_error: defaults}\npool: {capacity: 64 MB of it}\n");
  EXPECT_EXIT(
      {
        setenv("GPUPOOL_CONFIG", path.c_str(), 1);
        const Plugin plugin;
        allocate_and_leave(plugin);
      },
      ::testing::ExitedWithCode(0),
      "going on with the defaults: [^\n]*\nallocated, limit 150323855360\n$");
}

TEST_F(PluginProcessTest, ASecondFreeIsOneLineThatHasTheAddress) {
  EXPECT_EXIT(
      {
        const Plugin plugin;
        void* const block = plugin.alloc(kMiB, 0);
        for (int i = 0; i < 3; ++i) plugin.free(block, kMiB, 0);
        if (plugin.counters().foreign_frees != 2) std::_Exit(1);
        if (plugin.numbers(0)["misuses.double_free"] != 2) std::_Exit(2);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0),
      "^gpupool: device 0: misuse, refused or ignored: double_free of 0x[0-9a-f]+; [^\n]*\n$");
}

TEST_F(PluginProcessTest, AMisuseIsToldWithSizesAndEachKindOnceADevice) {
  EXPECT_EXIT(
      {
        const Plugin plugin;
        plugin.free(plugin.alloc(kMiB, 1), 17, 1);
        plugin.free(plugin.alloc(kMiB, 1), 17, 1);
        int local = 0;
        plugin.free(&local, 17, 1);
        plugin.free(&local, 17, 62);  // has no pool, and so nobody else who could say it
        plugin.free(&local, 17, 62);
        if (plugin.counters().foreign_frees != 3) std::_Exit(1);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0),
      "^gpupool: device 1: misuse, [^\n]*wrong_size of 0x[0-9a-f]+, a block of 1048576 bytes, given"
      " as 17 bytes; [^\n]*\n"
      "gpupool: device 1: misuse, [^\n]*foreign_pointer of 0x[0-9a-f]+; [^\n]*\n"
      "gpupool: an address was freed on a device without a pool[^\n]*\n$");
}

TEST_F(PluginProcessTest, AFileThatIsNotThereStops) {
  EXPECT_EXIT(
      {
        setenv("GPUPOOL_CONFIG", "/nowhere/at/all.yaml", 1);
        const Plugin plugin;
        allocate_and_leave(plugin);
      },
      ::testing::ExitedWithCode(0), "thrown: gpupool: .*/nowhere/at/all.yaml: cannot be opened");
}

TEST_F(PluginProcessTest, AnUnknownDeviceInTheEnvironmentStops) {
  EXPECT_EXIT(
      {
        const Plugin plugin;
        setenv("GPUPOOL_DEVICE", "tpu", 1);
        allocate_and_leave(plugin);
      },
      ::testing::ExitedWithCode(0), "thrown: gpupool: GPUPOOL_DEVICE is 'tpu'; allowed are cuda");
}

#if GPUPOOL_TEST_EXPORTER
/// A port of this machine that is taken while the object lives.
class TakenPort {
 public:
  TakenPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(socket_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(socket_, 1) != 0 ||
        getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      std::abort();
    }
    port_ = ntohs(address.sin_port);
  }
  ~TakenPort() { close(socket_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  std::string text() const { return std::to_string(port_); }

 private:
  int socket_;
  int port_ = 0;
};

TEST_F(PluginProcessTest, ATakenPortIsOneLineAndThePoolWorksOn) {
  EXPECT_EXIT(
      {
        const TakenPort taken;
        const std::string path = write_config("exporter: {port: " + taken.text() + "}\n");
        setenv("GPUPOOL_CONFIG", path.c_str(), 1);
        const Plugin plugin;
        allocate_and_leave(plugin);
      },
      ::testing::ExitedWithCode(0),
      "^gpupool: device 0: no metrics by HTTP, the pool works on: [^\n]*\nallocated");
}

TEST_F(PluginProcessTest, TheExporterServesTheDevicesPool) {
  const std::string path = write_config("exporter: {port: 0}\n");
  EXPECT_EXIT(
      {
        setenv("GPUPOOL_CONFIG", path.c_str(), 1);
        const Plugin plugin;
        plugin.free(plugin.alloc(kMiB, 0), kMiB, 0);
        const auto url = plugin.find<decltype(gpupool_torch_url)>("gpupool_torch_url");
        char text[64] = "";
        if (url(0, text, sizeof text) != std::string(text).size()) std::_Exit(1);
        if (url(1, nullptr, 0) != 0) std::_Exit(2);
        std::fprintf(stderr, "url %s\n", text);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "url http://127.0.0.1:[0-9]+/\n");
}

TEST_F(PluginProcessTest, AllDevicesShareOneExporterWhoseFileIsGoneAtTheEnd) {
  const std::string targets = ::testing::TempDir() + "gpupool-targets";
  std::filesystem::remove_all(targets);
  const std::string path =
      write_config("exporter: {port: 0, discovery: {directory: \"" + targets + "\"}}\n");
  EXPECT_EXIT(
      {
        setenv("GPUPOOL_CONFIG", path.c_str(), 1);
        const Plugin plugin;
        const auto url = plugin.find<decltype(gpupool_torch_url)>("gpupool_torch_url");
        char first[64] = "";
        char second[64] = "";
        plugin.free(plugin.alloc(kMiB, 0), kMiB, 0);
        plugin.free(plugin.alloc(kMiB, 1), kMiB, 1);
        url(0, first, sizeof first);
        url(1, second, sizeof second);
        if (std::string(first).empty() || std::string(first) != second) std::_Exit(1);
        if (std::filesystem::is_empty(targets)) std::_Exit(2);
        std::exit(0);  // by way of the handlers
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_TRUE(std::filesystem::is_empty(targets));
}
#endif

/// What a forked child sees; 0 where it is as it should be.
int child_of_fork(const Plugin& plugin, void* block, gpupool_pool* pool) {
  try {
    plugin.alloc(kMiB, 0);
    return 10;
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    if (text.find("this process was forked") == std::string::npos) return 11;
    if (text.find("spawn") == std::string::npos) return 12;
  }
  if (plugin.alloc_or_null(kMiB, 0) != nullptr) return 13;
  plugin.free(block, kMiB, 0);
  plugin.record_stream(block, nullptr);
  plugin.find<decltype(gpupool_torch_reset)>("gpupool_torch_reset")();
  if (plugin.pool(0) == pool || plugin.pool(0, false) != nullptr) return 14;
  if (plugin.configure(nullptr) == GPUPOOL_OK) return 15;
  if (plugin.counters().calls_after_fork < 3) return 16;
  return 0;
}

TEST_F(PluginProcessTest, AForkedChildGetsAClearErrorAndItsParentGoesOn) {
  EXPECT_EXIT(
      {
        const Plugin plugin;
        void* const block = plugin.alloc(kMiB, 0);
        gpupool_pool* const pool = plugin.pool(0);
        for (int i = 0; i < 20; ++i) {
          const pid_t child = fork();
          // Through exit(), as a child that ends by itself does: its handlers must be harmless.
          if (child == 0) std::exit(child_of_fork(plugin, block, pool));
          int status = 0;
          if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) std::_Exit(2);
          if (WEXITSTATUS(status) != 0) std::_Exit(WEXITSTATUS(status));
        }
        if (plugin.stats(0).live_blocks != 1) std::_Exit(3);
        plugin.free(block, kMiB, 0);
        plugin.free(plugin.alloc(kMiB, 0), kMiB, 0);
        if (plugin.stats(0).live_blocks != 0) std::_Exit(4);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(PluginProcessTest, AChildForkedBeforeTheFirstRequestHasAPoolOfItsOwn) {
  EXPECT_EXIT(
      {
        const Plugin plugin;
        const pid_t child = fork();
        if (child == 0) allocate_and_leave(plugin);
        int status = 0;
        waitpid(child, &status, 0);
        std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
      },
      ::testing::ExitedWithCode(0), "allocated");
}

}  // namespace
}  // namespace gpupool::testing
