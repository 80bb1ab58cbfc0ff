#include "bench/peers/machine.h"

#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "bench/peers/report.h"
#include "bench/peers/timing.h"
#include "tools/terminal/units.h"

namespace gpupool::bench {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kRegion = std::size_t{64} << 20;
constexpr int kRounds = 7;

/// Median over rounds of `count` calls, nanoseconds a call.
template <class F>
double ns_a_call(std::uint64_t count, const F& call) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const Time start = now();
    for (std::uint64_t i = 0; i < count; ++i) call();
    rounds.push_back(ns_since(start) / static_cast<double>(count));
  }
  return median(rounds);
}

void measure_multiply(MachineFacts& facts) {
  constexpr std::uint64_t kMultiplications = 1'000'000;
  constexpr int kManyRounds = 101;  // a tenth of a second: long enough to meet a busy neighbour
  std::vector<double> rounds;
  std::uint64_t value = 3;
  for (int round = 0; round < kManyRounds; ++round) {
    const Time start = now();
    for (std::uint64_t i = 0; i < kMultiplications; ++i) {
      value *= 0x9E3779B97F4A7C15U;
      asm volatile("" : "+r"(value));  // one after the other, not a power computed at once
    }
    rounds.push_back(ns_since(start) / kMultiplications);
  }
  facts.multiply_ns = median(rounds);
  facts.multiply_ns_least = least(rounds);
  facts.multiply_ns_most = *std::max_element(rounds.begin(), rounds.end());
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The value of the first line of /proc/cpuinfo that begins with `key`.
std::string cpu_info(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.rfind(key, 0) == 0 && colon != std::string::npos && colon + 2 <= line.size()) {
      return line.substr(colon + 2);
    }
  }
  return {};
}

std::string kernel_release() {
  utsname names{};
  return uname(&names) == 0 ? std::string(names.sysname) + " " + names.release : std::string();
}

long barrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

void measure_barrier(MachineFacts& facts) {
  if (barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0) {
    facts.barrier_refusal = std::strerror(errno);
    return;
  }
  constexpr std::uint64_t kCalls = 2000;
  bool is_refused = false;
  const auto call = [&is_refused] {
    if (barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) is_refused = true;
  };
  const double asleep = ns_a_call(kCalls, call);
  std::atomic<bool> is_over{false};
  std::thread runner([&is_over] {
    while (!is_over.load(std::memory_order_relaxed)) keep(is_over);
  });
  const double running = ns_a_call(kCalls, call);
  is_over = true;
  runner.join();
  if (is_refused) {
    facts.barrier_refusal = "registered, but refused when called";
    return;
  }
  facts.barrier_asleep_ns = asleep;
  facts.barrier_running_ns = running;
}

/// Fresh memory, given back at the end. Empty where the kernel has none.
class Region {
 public:
  Region(std::size_t bytes, int advice) : bytes_(bytes) {
    void* const start =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return;
    data_ = static_cast<char*>(start);
    // Refused where the kernel has no huge pages: then all are small, as the figures will show.
    if (advice >= 0) static_cast<void>(madvise(data_, bytes, advice));
  }
  ~Region() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  char* data() const { return data_; }

 private:
  std::size_t bytes_;
  char* data_ = nullptr;
};

double page_fault_ns(std::size_t bytes, int advice, int round_count) {
  const std::size_t page_count = bytes / kPage;
  std::vector<double> rounds;
  for (int round = 0; round < round_count; ++round) {
    const Region region(bytes, advice);
    if (region.data() == nullptr) return 0;
    const Time start = now();
    for (std::size_t at = 0; at < bytes; at += kPage) region.data()[at] = 1;
    keep(*region.data());
    rounds.push_back(ns_since(start) / static_cast<double>(page_count));
  }
  return median(rounds);
}

/// Follows one random cycle through all lines of a region: each load waits for the one before.
double load_ns(int advice) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kLines = kRegion / kLine;
  const Region region(kRegion, advice);
  if (region.data() == nullptr) return 0;
  std::vector<std::uint32_t> order(kLines);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  const auto next = [&region](std::size_t line) {
    return reinterpret_cast<std::uint32_t*>(region.data() + line * kLine);
  };
  for (std::size_t i = 0; i < kLines; ++i) *next(order[i]) = order[(i + 1) % kLines];
  std::uint32_t at = order[0];
  constexpr std::uint64_t kLoads = kLines / 8;
  const double ns = ns_a_call(kLoads, [&] { at = *next(at); });
  keep(at);
  return ns;
}

std::string ns_text(double ns) { return tools::fixed(ns, 1) + " ns"; }

}  // namespace

MachineFacts measure_machine() {
  MachineFacts facts;
  facts.cpu = cpu_info("model name");
  facts.cores = std::thread::hardware_concurrency();
  facts.kernel = kernel_release();
  facts.is_virtual = (" " + cpu_info("flags") + " ").find(" hypervisor ") != std::string::npos;
  facts.clock_source =
      first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  facts.huge_pages = first_line("/sys/kernel/mm/transparent_hugepage/enabled");

  constexpr std::uint64_t kCalls = 200'000;
  const SleepingThread second;
  measure_multiply(facts);
  facts.clock_ns = ns_a_call(kCalls, [] { keep(now()); });
  std::mutex mutex;
  facts.mutex_ns = ns_a_call(kCalls, [&mutex] {
    mutex.lock();
    mutex.unlock();
  });
  std::atomic<std::uint64_t> word{0};
  facts.compare_exchange_ns = ns_a_call(kCalls, [&word] {
    std::uint64_t expected = word.load(std::memory_order_relaxed);
    word.compare_exchange_strong(expected, expected + 1);
  });
  facts.system_call_ns = ns_a_call(kCalls, [] { keep(syscall(SYS_gettid)); });
  measure_barrier(facts);
  facts.page_fault_ns = page_fault_ns(kRegion, MADV_NOHUGEPAGE, kRounds);
  facts.page_fault_default_ns = page_fault_ns(kRegion, -1, kRounds);
  facts.page_fault_gib_ns = page_fault_ns(std::size_t{1} << 30, MADV_NOHUGEPAGE, 1);
  facts.load_ns = load_ns(MADV_NOHUGEPAGE);
  facts.load_huge_ns = load_ns(MADV_HUGEPAGE);
  return facts;
}

std::string to_json_text(const MachineFacts& facts) {
  const auto or_null = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  const Json json = {{"cpu", facts.cpu},
                     {"cores", facts.cores},
                     {"kernel", facts.kernel},
                     {"is_virtual", facts.is_virtual},
                     {"clock_source", facts.clock_source},
                     {"huge_pages", facts.huge_pages},
                     {"multiply_ns", facts.multiply_ns},
                     {"multiply_ns_least", facts.multiply_ns_least},
                     {"multiply_ns_most", facts.multiply_ns_most},
                     {"clock_ns", facts.clock_ns},
                     {"mutex_ns", facts.mutex_ns},
                     {"compare_exchange_ns", facts.compare_exchange_ns},
                     {"system_call_ns", facts.system_call_ns},
                     {"barrier_asleep_ns", or_null(facts.barrier_asleep_ns)},
                     {"barrier_running_ns", or_null(facts.barrier_running_ns)},
                     {"barrier_refusal", facts.barrier_refusal},
                     {"page_fault_ns", facts.page_fault_ns},
                     {"page_fault_default_ns", facts.page_fault_default_ns},
                     {"page_fault_gib_ns", facts.page_fault_gib_ns},
                     {"load_ns", facts.load_ns},
                     {"load_huge_ns", facts.load_huge_ns}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_text(const MachineFacts& facts) {
  std::string text = "machine: " + facts.cpu + ", " + std::to_string(facts.cores) + " cores" +
                     (facts.is_virtual ? ", virtual" : "") + ", " + facts.kernel +
                     ", clock source " + facts.clock_source + "\n";
  text += "  multiplication " + tools::fixed(facts.multiply_ns, 2) + " ns (" +
          tools::fixed(facts.multiply_ns_least, 2) + " to " +
          tools::fixed(facts.multiply_ns_most, 2) + " in short rounds)\n";
  text += "  steady_clock " + ns_text(facts.clock_ns) + ", mutex " + ns_text(facts.mutex_ns) +
          ", compare-exchange " + ns_text(facts.compare_exchange_ns) + ", system call " +
          ns_text(facts.system_call_ns) + "\n";
  if (facts.barrier_asleep_ns && facts.barrier_running_ns) {
    text += "  membarrier " + ns_text(*facts.barrier_asleep_ns) + " with a thread asleep, " +
            ns_text(*facts.barrier_running_ns) + " with one running\n";
  } else {
    text += "  membarrier refused: " + facts.barrier_refusal + "\n";
  }
  text += "  page fault " + ns_text(facts.page_fault_ns) + " per 4 KiB, " +
          ns_text(facts.page_fault_default_ns) + " with transparent huge pages as they are (" +
          facts.huge_pages + "), " + ns_text(facts.page_fault_gib_ns) + " over 1 GiB at once\n";
  text += "  random load over 64 MiB " + ns_text(facts.load_ns) + ", " +
          ns_text(facts.load_huge_ns) + " with huge pages asked for\n";
  return text;
}

}  // namespace gpupool::bench
