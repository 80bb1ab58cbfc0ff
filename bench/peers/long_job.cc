#include "bench/peers/long_job.h"

#include <algorithm>

#include "bench/peers/cuda_streams.h"
#include "bench/peers/timing.h"

namespace gpupool::bench {
namespace {

// Reads the device's nanosecond clock until the time is over.
constexpr char kSpin[] = R"(
.version 6.4
.target sm_75
.address_size 64
.visible .entry gpupool_spin(.param .u64 spin_ns)
{
  .reg .u64 %start, %now, %limit;
  .reg .pred %again;
  ld.param.u64 %limit, [spin_ns];
  mov.u64 %start, %globaltimer;
wait:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %again, %now, %limit;
  @%again bra wait;
  ret;
}
)";

constexpr int kMostFills = 900;  // fewer than a stream takes before it blocks its caller

}  // namespace

Result<std::unique_ptr<LongJob>, Status> LongJob::create() {
  std::unique_ptr<LongJob> job(new LongJob());
  auto ready = job->load_kernel();
  if (ready.ok()) {
    ready = job->start(nullptr, std::chrono::microseconds(10));
    if (ready.ok()) ready = check_cuda(cudaDeviceSynchronize(), "the kernel failed");
    if (!ready.ok()) job->kernel_ = nullptr;
  }
  if (!ready.ok()) {
    static_cast<void>(cudaGetLastError());  // the second way follows
    ready = job->prepare_fills();
  }
  if (!ready.ok()) return ready.error();
  return job;
}

LongJob::~LongJob() {
  // At the end of a measurement, with the device idle; nothing could be done about an error.
  static_cast<void>(cudaFree(buffer_));
  if (library_ != nullptr) static_cast<void>(cudaLibraryUnload(library_));
}

Result<void, Status> LongJob::load_kernel() {
  const auto loaded =
      check_cuda(cudaLibraryLoadData(&library_, kSpin, nullptr, nullptr, 0, nullptr, nullptr, 0),
                 "the driver did not compile the kernel");
  if (!loaded.ok()) return loaded.error();
  return check_cuda(cudaLibraryGetKernel(&kernel_, library_, "gpupool_spin"), "no kernel");
}

Result<void, Status> LongJob::prepare_fills() {
  buffer_bytes_ = std::size_t{1} << 30;
  const auto allocated = check_cuda(cudaMalloc(&buffer_, buffer_bytes_), "no buffer to fill");
  if (!allocated.ok()) return allocated.error();
  constexpr int kTimed = 8;
  for (int round = 0; round < 2; ++round) {  // the first one warms up
    const Time start = now();
    for (int i = 0; i < kTimed; ++i) {
      static_cast<void>(cudaMemsetAsync(buffer_, i, buffer_bytes_, nullptr));
    }
    const auto done = check_cuda(cudaDeviceSynchronize(), "cannot fill memory");
    if (!done.ok()) return done.error();
    fill_ns_ = ns_since(start) / kTimed;
  }
  return {};
}

Result<void, Status> LongJob::start(cudaStream_t stream, std::chrono::nanoseconds duration) {
  auto ns = static_cast<std::uint64_t>(std::min(duration, kLongest).count());
  if (kernel_ != nullptr) {
    void* arguments[] = {&ns};
    // The runtime takes a kernel's handle where it takes a function's address.
    const void* const function = reinterpret_cast<const void*>(kernel_);
    return check_cuda(cudaLaunchKernel(function, dim3(1), dim3(1), arguments, 0, stream),
                      "cannot start the kernel");
  }
  const int fills = std::clamp(static_cast<int>(static_cast<double>(ns) / fill_ns_), 1, kMostFills);
  for (int i = 0; i < fills; ++i) {
    const auto given =
        check_cuda(cudaMemsetAsync(buffer_, i, buffer_bytes_, stream), "cannot fill memory");
    if (!given.ok()) return given.error();
  }
  return {};
}

}  // namespace gpupool::bench
