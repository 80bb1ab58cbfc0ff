#include "tests/exit/exit_library.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "gpupool/exporter/exporter.h"
#include "gpupool/faulty_backend.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"

namespace {

using namespace gpupool;

// The threads of the exporter may be in a call while main() ends; what must not be is a call by
// whoever destroys static objects, or one after they are gone.
std::atomic<bool> is_pool_gone{false};

/// Destroyed once the main thread's own objects are: everything static comes after.
struct EndOfMain {
  ~EndOfMain() { has_main_ended = true; }
  static inline std::atomic<bool> has_main_ended{false};
};
thread_local EndOfMain end_of_main;

void end_if_too_late() {
  const bool is_static_object = EndOfMain::has_main_ended && gettid() == getpid();
  if (!is_static_object && !is_pool_gone) return;
  std::fputs("a driver call at the process's end\n", stderr);
  std::abort();
}

class Library {
 public:
  explicit Library(ExitSetting setting) {
    static_cast<void>(&end_of_main);
    for (std::size_t i = 0; i < kBackendCallCount; ++i) {
      backend_.before(static_cast<BackendCall>(i), end_if_too_late);
    }
    PoolOptions options;
    options.runtime.trim.idle_after_ns = 1'000'000;  // so that upkeep has calls to make
    pool_ = Pool::create(backend_, options).value();
    exporter_ = Exporter::start(*pool_, {.port = 0}, std::chrono::milliseconds(1)).value();
    if (setting == ExitSetting::eagerly) use(1);
  }
  ~Library() {
    // As a tensor does that is static itself.
    static_cast<void>(pool_->deallocate(kept_, stream_));
    exporter_.reset();
    pool_.reset();
    is_pool_gone = true;
  }

  bool use(int rounds) {
    if (!stream_.is_valid()) stream_ = pool_->adopt_stream(device_.create_stream()).value();
    for (int i = 0; i < rounds; ++i) {
      const auto block = pool_->allocate(std::size_t{1} << (12 + i % 12), stream_);
      if (!block.ok() || !pool_->deallocate(block.value(), stream_)) return false;
    }
    if (kept_ == nullptr) kept_ = pool_->allocate(5 << 20, stream_).value();
    return true;
  }
  bool use_elsewhere() {
    bool is_good = false;
    std::thread other([&] { is_good = use(50); });
    other.join();
    return is_good;
  }

 private:
  SimulatedBackend device_{{.capacity_bytes = std::uint64_t{1} << 30}};
  FaultyBackend backend_{device_};
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Exporter> exporter_;
  StreamRef stream_;
  void* kept_ = nullptr;
};

}  // namespace

bool use_exit_library(ExitSetting setting) {
  static Library library(setting);
  return library.use(50) && library.use_elsewhere();
}
