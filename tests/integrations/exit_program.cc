// Uses the plug-in as a job does and ends as its argument says: return, exit, throw, sigterm.
// Threads still allocate then, memory is live, and a static object frees some on its way out.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "tests/integrations/plugin.h"

namespace gpupool::testing {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

/// Like a tensor in a static variable.
struct StaticBlock {
  const Plugin* plugin = nullptr;
  void* block = nullptr;
  ~StaticBlock() {
    if (plugin != nullptr) plugin->free(block, kBytes, 0);
  }
};
StaticBlock static_block;

void work_for_ever(const Plugin& plugin) {
  for (;;) {
    try {
      plugin.free(plugin.alloc(kBytes, 0), kBytes, 0);
    } catch (const std::runtime_error&) {
      return;  // the process is ending
    }
  }
}

int end(std::string_view how) {
  if (how == "return") return 0;
  if (how == "exit") std::exit(0);
  if (how == "throw") throw std::runtime_error("nobody catches this");
  if (how == "sigterm") {
    kill(getpid(), SIGTERM);
    for (;;) pause();
  }
  return 2;
}

}  // namespace
}  // namespace gpupool::testing

int main(int argc, char** argv) {
  const rlimit none{};
  setrlimit(RLIMIT_CORE, &none);
  // Both outlive main(), for the threads and for the static object.
  static const auto* const plugin = new gpupool::testing::Plugin();
  gpupool::testing::static_block.block = plugin->alloc(gpupool::testing::kBytes, 0);
  gpupool::testing::static_block.plugin = plugin;
  for (int i = 0; i < 2; ++i) {
    std::thread([] { gpupool::testing::work_for_ever(*plugin); }).detach();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return gpupool::testing::end(argc > 1 ? argv[1] : "");
}
