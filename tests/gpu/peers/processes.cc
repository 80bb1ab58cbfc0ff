#include "tests/gpu/peers/processes.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <sstream>
#include <thread>

#include "tests/gpu/peers/steps.h"

namespace gpupool::gpu_tests {
namespace {

constexpr std::size_t kBytes = std::size_t{8} << 20;
constexpr std::size_t kInside = std::size_t{2} << 20;
constexpr auto kChildLimit = std::chrono::seconds(60);

/// What the child is told: memory of a handle, and the part of it that holds a pattern.
struct Spec {
  int device = 0;  // the child's
  cudaIpcMemHandle_t handle = {};
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t seed = 0;
};

std::string print(const Spec& spec) {
  std::ostringstream text;
  text << spec.device << ' ' << spec.offset << ' ' << spec.bytes << ' ' << spec.seed << ' ';
  constexpr char kDigits[] = "0123456789abcdef";
  for (const char raw : spec.handle.reserved) {
    const auto byte = static_cast<unsigned char>(raw);
    text << kDigits[byte >> 4] << kDigits[byte & 15];
  }
  return text.str();
}

Spec parse(const std::string& line) {
  Spec spec;
  std::string digits;
  std::istringstream text(line);
  text >> spec.device >> spec.offset >> spec.bytes >> spec.seed >> digits;
  if (!text || digits.size() != 2 * sizeof spec.handle.reserved) throw Broken("a wrong --child");
  for (std::size_t i = 0; i < sizeof spec.handle.reserved; ++i) {
    spec.handle.reserved[i] = static_cast<char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  }
  return spec;
}

std::uint32_t answer_to(std::uint32_t seed) { return ~seed; }

/// The exit status of this program with `arguments`; it has a minute.
int run_again(const std::string& spec) {
  char program[] = "/proc/self/exe";
  char option[] = "--child";
  std::string copy = spec;
  char* arguments[] = {program, option, copy.data(), nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, program, nullptr, nullptr, arguments, environ) != 0) {
    throw Broken("another process could not be started");
  }
  const auto end = std::chrono::steady_clock::now() + kChildLimit;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      throw Broken("the other process did not end");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// A block of device 0 and a process that is given it.
class Sharing {
 public:
  Sharing(Task& task, Fleet& fleet) : task_(task), fleet_(fleet), stream_(fleet, 0) {}

  /// By the handles of its start and of an address inside it.
  void pass_on(AllocationClass allocation_class);
  /// The pool says in words that it cannot, and the driver says no.
  void expect_refusal();
  /// As one handle, which legacy IPC refuses.
  void expect_handle();

 private:
  void pass_from(char* block, std::size_t inside, std::uint32_t seed);
  ExportInfo find(const void* address) {
    return must(
        task_.watch.ask("Pool::find_export", [&] { return fleet_.pool(0).find_export(address); }),
        "find_export");
  }
  bool driver_takes(void* address) {
    const OnDevice on(stream_.device());
    cudaIpcMemHandle_t handle = {};
    const bool is_taken = cudaIpcGetMemHandle(&handle, address) == cudaSuccess;
    static_cast<void>(cudaGetLastError());
    return is_taken;
  }
  void fault(const char* why) { task_.watch.report().fault("blocks for another process", why); }

  Task& task_;
  Fleet& fleet_;
  PoolStream stream_;
};

void Sharing::pass_on(AllocationClass allocation_class) {
  // So that the next block does not begin where its segment does.
  void* const before = stream_.get_block(kInside);
  auto* const block = static_cast<char*>(stream_.get_block(kBytes, allocation_class));
  pass_from(block, 0, 11);
  pass_from(block, kInside, 12);
  stream_.free_block(block);
  stream_.free_block(before);
}

void Sharing::pass_from(char* block, std::size_t inside, std::uint32_t seed) {
  Spec spec;
  spec.device = fleet_.away_from(0, 0);
  const ExportInfo info = find(block + inside);
  if (info.kind != ExportInfo::Kind::cudamalloc) throw Broken("not exported as a cudaMalloc");
  const Pattern whole{reinterpret_cast<DeviceAddress>(block), kBytes, seed};
  {
    const OnDevice on(stream_.device());
    must(cudaIpcGetMemHandle(&spec.handle, block + inside), "cudaIpcGetMemHandle");
    must(stream_.kernels().fill(stream_.raw(), whole), "filling a block");
  }
  stream_.synchronize();
  spec.offset = info.offset;
  spec.bytes = kBytes - inside;
  spec.seed = whole.word(inside / sizeof(std::uint32_t));
  const int status = run_again(print(spec));
  if (status != 0) {
    throw Broken("the other process ended with " + std::to_string(status) + ", for an address " +
                 std::to_string(inside) + " bytes into the block");
  }
  const Pattern left{whole.address, inside, seed};
  const Pattern answer{whole.address + inside, spec.bytes, answer_to(spec.seed)};
  {
    const OnDevice on(stream_.device());
    must(stream_.kernels().check(stream_.raw(), left), "checking a block");
    must(stream_.kernels().check(stream_.raw(), answer), "checking an answer");
  }
  task_.watch.report().progress = ++task_.row.rounds;
}

void Sharing::expect_refusal() {
  auto* const block = static_cast<char*>(stream_.get_block(kBytes));
  for (const std::size_t inside : {std::size_t{0}, kInside}) {
    const auto info = task_.watch.ask("Pool::find_export",
                                      [&] { return fleet_.pool(0).find_export(block + inside); });
    if (info.ok() || info.error().code != Error::not_supported ||
        info.error().message.find("contiguous") == std::string::npos ||
        info.error().message.find("cudaIpcGetMemHandle") == std::string::npos) {
      fault("the pool does not say that a block of pages cannot be passed on");
    }
    if (driver_takes(block + inside)) fault("the driver takes a block of pages after all");
    ++task_.row.rounds;
  }
  stream_.free_block(block);
}

void Sharing::expect_handle() {
  auto* const block = static_cast<char*>(stream_.get_block(kBytes, AllocationClass::contiguous));
  if (find(block).kind != ExportInfo::Kind::handle || find(block + kInside).offset != kInside) {
    fault("a block that is a handle is not exported as one");
  }
  if (driver_takes(block)) fault("the driver takes a handle for legacy IPC after all");
  ++task_.row.rounds;
  stream_.free_block(block);
}

}  // namespace

void share_between_processes(Task& task) {
  Fleet fleet(task.cards, task.mode, capacity_of(task.mode), task.watch);
  {
    Sharing sharing(task, fleet);
    if (task.mode.contiguous == ContiguousBacking::handle) {
      task.row.wanted_rounds = 1;
      sharing.expect_handle();
    } else if (task.mode.backing == Backing::vmm) {
      task.row.wanted_rounds = 4;
      sharing.expect_refusal();
      sharing.pass_on(AllocationClass::contiguous);
    } else {
      task.row.wanted_rounds = 4;
      sharing.pass_on(AllocationClass::normal);
      sharing.pass_on(AllocationClass::contiguous);
    }
  }
  for (std::size_t i = 0; i < fleet.count(); ++i) {
    const OnDevice on(fleet.card(i).device);
    const std::uint64_t words = must(fleet.card(i).kernels->mismatches(), "counters").words;
    if (words != 0) {
      task.watch.report().fault("blocks for another process",
                                std::to_string(words) + " words of the answers were wrong");
    }
    must(fleet.card(i).kernels->clear_mismatches(), "clearing counters");
  }
}

int run_child(const std::string& line) {
  try {
    const Spec spec = parse(line);
    must(cudaSetDevice(spec.device), "cudaSetDevice");
    const auto kernels = must(Kernels::create(), "kernels");
    void* base = nullptr;
    must(cudaIpcOpenMemHandle(&base, spec.handle, cudaIpcMemLazyEnablePeerAccess),
         "cudaIpcOpenMemHandle");
    const Pattern sent{reinterpret_cast<DeviceAddress>(base) + spec.offset, spec.bytes, spec.seed};
    Pattern answer = sent;
    answer.seed = answer_to(spec.seed);
    must(kernels->check(nullptr, sent), "checking a block");
    must(kernels->fill(nullptr, answer), "writing an answer");
    const std::uint64_t words = must(kernels->mismatches(), "reading counters").words;
    must(cudaIpcCloseMemHandle(base), "cudaIpcCloseMemHandle");
    if (words == 0) return 0;
    throw Broken(std::to_string(words) + " words were not what the other process wrote");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpupool_gpu_peers --child: %s\n", error.what());
    return 4;
  }
}

}  // namespace gpupool::gpu_tests
