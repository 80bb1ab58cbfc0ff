#include "tests/gpu/kernels.h"

#include <algorithm>

#include "tests/gpu/kernels_ptx.h"

namespace gpupool::gpu_tests {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kMeetingThreads = 1024;  // of the one block
constexpr unsigned kResidentBlocks = 4;     // few, so that the card is free for the others
constexpr unsigned kBlocksPerProcessor = 16;
constexpr std::uint64_t kBytesPerThread = 16;

Result<void, Status> get_kernel(cudaKernel_t& kernel, cudaLibrary_t library, const char* name) {
  return check_cuda(cudaLibraryGetKernel(&kernel, library, name), std::string("no kernel ") + name);
}

Result<void, Status> compile(cudaLibrary_t& library, const std::string& text) {
  return check_cuda(
      cudaLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
      "the driver did not compile the kernels");
}

}  // namespace

Result<std::unique_ptr<Kernels>, Status> Kernels::create() {
  std::unique_ptr<Kernels> kernels(new Kernels());
  if (const auto loaded = kernels->load(); !loaded.ok()) return loaded.error();
  if (const auto ran = kernels->run_each_once(); !ran.ok()) return ran.error();
  return kernels;
}

Kernels::~Kernels() {
  // At the end of a test, with the device idle; nothing could be done about an error.
  static_cast<void>(cudaFree(counters_));
  if (general_library_ != nullptr) static_cast<void>(cudaLibraryUnload(general_library_));
  if (dependent_library_ != nullptr) static_cast<void>(cudaLibraryUnload(dependent_library_));
}

Result<void, Status> Kernels::load() {
  int device = 0;
  int processors = 0;
  int major = 0;
  auto done = check_cuda(cudaGetDevice(&device), "no CUDA device");
  const auto ask = [&](int& value, cudaDeviceAttr attribute) {
    if (done.ok()) {
      done = check_cuda(cudaDeviceGetAttribute(&value, attribute, device), "no such attribute");
    }
  };
  const auto get = [&](cudaKernel_t& kernel, cudaLibrary_t library, const char* name) {
    if (done.ok()) done = get_kernel(kernel, library, name);
  };
  ask(processors, cudaDevAttrMultiProcessorCount);
  ask(major, cudaDevAttrComputeCapabilityMajor);
  most_blocks_ = static_cast<unsigned>(processors) * kBlocksPerProcessor;
  if (done.ok()) done = compile(general_library_, general_ptx());
  get(fill_, general_library_, "gpupool_fill");
  get(check_, general_library_, "gpupool_check");
  get(spin_, general_library_, "gpupool_spin");
  get(resident_, general_library_, "gpupool_resident");
  if (major >= 9) {
    if (done.ok()) done = compile(dependent_library_, dependent_ptx());
    get(chain_, dependent_library_, "gpupool_chain");
    get(write_met_, dependent_library_, "gpupool_write_met");
    get(read_met_, dependent_library_, "gpupool_read_met");
    get(write_and_read_, dependent_library_, "gpupool_write_and_read");
  }
  if (done.ok()) {
    done = check_cuda(cudaMalloc(&counters_, kCounters * sizeof(Mismatches)), "no counters");
  }
  if (done.ok()) done = clear_mismatches();
  return done;
}

Result<void, Status> Kernels::run_each_once() {
  // A kernel's code is loaded at its first launch, which may wait for all that runs: with a
  // resident kernel, for ever. Ranges of no words are touched by none of them.
  const Pattern nothing;
  void* control = nullptr;
  auto done = check_cuda(cudaMalloc(&control, 16), "no memory for a kernel's flags");
  const auto flags = reinterpret_cast<DeviceAddress>(control);
  const auto run = [&](auto&& launch) {
    if (done.ok()) done = launch();
  };
  // Not 0: the resident kernel ends at once. The other fills are what tests give as well.
  run([&] { return check_cuda(cudaMemsetAsync(control, 1, 16, nullptr), "cannot fill memory"); });
  run([&] { return fill(nullptr, nothing); });
  run([&] { return check(nullptr, nothing); });
  run([&] { return spin(nullptr, 1); });
  run([&] { return resident(nullptr, flags, nothing, 1); });
  if (has_dependent_launch()) {
    Meeting meeting;
    meeting.flags = flags;
    run([&] { return chain(nullptr, nothing, nothing); });
    run([&] { return write_met(nullptr, nothing, meeting); });
    run([&] { return read_met(nullptr, nothing, meeting, Launch::ordinary); });
    run([&] { return write_and_read(nullptr, nothing, 0, meeting); });
  }
  run([&] { return check_cuda(cudaDeviceSynchronize(), "the kernels failed"); });
  const auto freed = check_cuda(cudaFree(control), "cannot free memory");
  return done.ok() ? freed : done;
}

Result<void, Status> Kernels::launch(cudaKernel_t kernel, cudaStream_t stream, unsigned blocks,
                                     unsigned threads, void** arguments, Launch how) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = how == Launch::dependent ? 1 : 0;
  // The runtime takes a kernel's handle where it takes a function's address.
  const void* const function = reinterpret_cast<const void*>(kernel);
  return check_cuda(cudaLaunchKernelExC(&config, function, arguments), "cannot start a kernel");
}

unsigned Kernels::blocks_for(const Pattern& pattern) const {
  const std::uint64_t wanted = pattern.bytes / (kBytesPerThread * kThreads) + 1;
  return static_cast<unsigned>(std::min<std::uint64_t>(wanted, most_blocks_));
}

DeviceAddress Kernels::counter_address(std::size_t counter) const {
  return reinterpret_cast<DeviceAddress>(static_cast<Mismatches*>(counters_) + counter);
}

Result<void, Status> Kernels::fill(cudaStream_t stream, const Pattern& pattern) {
  DeviceAddress address = pattern.address;
  std::uint64_t words = pattern.words();
  std::uint32_t seed = pattern.seed;
  void* arguments[] = {&address, &words, &seed};
  return launch(fill_, stream, blocks_for(pattern), kThreads, arguments, Launch::ordinary);
}

Result<void, Status> Kernels::check(cudaStream_t stream, const Pattern& pattern,
                                    std::size_t counter) {
  DeviceAddress address = pattern.address;
  std::uint64_t words = pattern.words();
  std::uint32_t seed = pattern.seed;
  DeviceAddress counts = counter_address(counter);
  void* arguments[] = {&address, &words, &seed, &counts};
  return launch(check_, stream, blocks_for(pattern), kThreads, arguments, Launch::ordinary);
}

Result<void, Status> Kernels::spin(cudaStream_t stream, std::uint64_t ns) {
  void* arguments[] = {&ns};
  return launch(spin_, stream, 1, 1, arguments, Launch::ordinary);
}

Result<void, Status> Kernels::resident(cudaStream_t stream, DeviceAddress control,
                                       const Pattern& pattern, std::uint64_t limit_ns,
                                       std::size_t counter) {
  DeviceAddress address = pattern.address;
  std::uint64_t words = pattern.words();
  std::uint32_t seed = pattern.seed;
  DeviceAddress counts = counter_address(counter);
  void* arguments[] = {&control, &address, &words, &seed, &counts, &limit_ns};
  return launch(resident_, stream, kResidentBlocks, kThreads, arguments, Launch::ordinary);
}

Result<void, Status> Kernels::chain(cudaStream_t stream, const Pattern& previous,
                                    const Pattern& own, std::size_t counter) {
  DeviceAddress addresses[] = {previous.address, own.address};
  std::uint64_t words[] = {previous.words(), own.words()};
  std::uint32_t seeds[] = {previous.seed, own.seed};
  DeviceAddress counts = counter_address(counter);
  void* arguments[] = {&addresses[0], &words[0], &seeds[0], &addresses[1],
                       &words[1],     &seeds[1], &counts};
  // One on each processor, so that a grid can be there beside the ones before it.
  const unsigned blocks =
      std::min(std::max(blocks_for(previous), blocks_for(own)), most_blocks_ / kBlocksPerProcessor);
  return launch(chain_, stream, blocks, kThreads, arguments, Launch::dependent);
}

Result<void, Status> Kernels::write_met(cudaStream_t stream, const Pattern& pattern,
                                        const Meeting& meeting) {
  DeviceAddress addresses[] = {pattern.address, meeting.flags};
  std::uint64_t words = pattern.words();
  std::uint32_t seed = pattern.seed;
  std::uint32_t token = meeting.token;
  std::uint64_t limit_ns = meeting.writer_limit_ns;
  void* arguments[] = {&addresses[0], &words, &seed, &addresses[1], &token, &limit_ns};
  return launch(write_met_, stream, 1, kMeetingThreads, arguments, Launch::ordinary);
}

Result<void, Status> Kernels::read_met(cudaStream_t stream, const Pattern& pattern,
                                       const Meeting& meeting, Launch how, std::size_t counter) {
  DeviceAddress addresses[] = {pattern.address, counter_address(counter), meeting.flags};
  std::uint64_t words = pattern.words();
  std::uint32_t seed = pattern.seed;
  std::uint32_t token = meeting.token;
  std::uint64_t limit_ns = meeting.reader_limit_ns;
  auto ahead = static_cast<std::uint32_t>(meeting.ahead);
  void* arguments[] = {&addresses[0], &words, &seed,     &addresses[1],
                       &addresses[2], &token, &limit_ns, &ahead};
  return launch(read_met_, stream, 1, kMeetingThreads, arguments, how);
}

Result<void, Status> Kernels::write_and_read(cudaStream_t stream, const Pattern& pattern,
                                             DeviceAddress read_at, const Meeting& meeting,
                                             std::size_t counter) {
  DeviceAddress addresses[] = {pattern.address, read_at, counter_address(counter), meeting.flags};
  std::uint64_t words = pattern.words();
  std::uint32_t seed = pattern.seed;
  void* arguments[] = {&addresses[0], &addresses[1], &words, &seed, &addresses[2], &addresses[3]};
  return launch(write_and_read_, stream, 1, kMeetingThreads, arguments, Launch::ordinary);
}

Result<Mismatches, Status> Kernels::mismatches(std::size_t counter) {
  Mismatches found;
  auto done = check_cuda(cudaDeviceSynchronize(), "the device failed");
  if (done.ok()) {
    done = check_cuda(cudaMemcpy(&found, static_cast<Mismatches*>(counters_) + counter,
                                 sizeof found, cudaMemcpyDeviceToHost),
                      "cannot read the counters");
  }
  if (!done.ok()) return done.error();
  return found;
}

Result<void, Status> Kernels::clear_mismatches() {
  return check_cuda(cudaMemset(counters_, 0, kCounters * sizeof(Mismatches)),
                    "cannot clear the counters");
}

}  // namespace gpupool::gpu_tests
