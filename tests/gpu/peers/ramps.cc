#include "tests/gpu/peers/ramps.h"

#include <algorithm>

#include "tests/gpu/peers/device_calls.h"

namespace gpupool::gpu_tests {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kMostBlocks = 512;

// One word a thread and step; the first wrong word's address and both values are kept, as the
// kernels of kernels_ptx.cc do.
constexpr char kPtx[] = R"(
.version 7.0
.target sm_80
.address_size 64

.visible .entry gpupool_ramp_fill(.param .u64 base_p, .param .u64 words_p, .param .u32 seed_p,
                                  .param .u32 step_p)
{
  .reg .u64 %base, %words, %word, %stride, %lane, %at;
  .reg .u32 %seed, %step, %size, %number, %low, %value;
  .reg .pred %over;
  ld.param.u64 %base, [base_p];
  ld.param.u64 %words, [words_p];
  ld.param.u32 %seed, [seed_p];
  ld.param.u32 %step, [step_p];
  mov.u32 %size, %ntid.x;
  mov.u32 %number, %ctaid.x;
  mul.wide.u32 %word, %number, %size;
  mov.u32 %number, %tid.x;
  cvt.u64.u32 %lane, %number;
  add.u64 %word, %word, %lane;
  mov.u32 %number, %nctaid.x;
  mul.wide.u32 %stride, %number, %size;
next:
  setp.ge.u64 %over, %word, %words;
  @%over bra end;
  cvt.u32.u64 %low, %word;
  mad.lo.u32 %value, %low, %step, %seed;
  shl.b64 %at, %word, 2;
  add.u64 %at, %at, %base;
  st.global.u32 [%at], %value;
  add.u64 %word, %word, %stride;
  bra next;
end:
  ret;
}

.visible .entry gpupool_ramp_check(.param .u64 base_p, .param .u64 words_p, .param .u32 seed_p,
                                   .param .u32 step_p, .param .u64 counter_p)
{
  .reg .u64 %base, %words, %word, %stride, %lane, %at, %counter, %old;
  .reg .u32 %seed, %step, %size, %number, %low, %want, %got;
  .reg .pred %over, %same, %later;
  ld.param.u64 %base, [base_p];
  ld.param.u64 %words, [words_p];
  ld.param.u32 %seed, [seed_p];
  ld.param.u32 %step, [step_p];
  ld.param.u64 %counter, [counter_p];
  mov.u32 %size, %ntid.x;
  mov.u32 %number, %ctaid.x;
  mul.wide.u32 %word, %number, %size;
  mov.u32 %number, %tid.x;
  cvt.u64.u32 %lane, %number;
  add.u64 %word, %word, %lane;
  mov.u32 %number, %nctaid.x;
  mul.wide.u32 %stride, %number, %size;
next:
  setp.ge.u64 %over, %word, %words;
  @%over bra end;
  cvt.u32.u64 %low, %word;
  mad.lo.u32 %want, %low, %step, %seed;
  shl.b64 %at, %word, 2;
  add.u64 %at, %at, %base;
  ld.global.u32 %got, [%at];
  add.u64 %word, %word, %stride;
  setp.eq.u32 %same, %want, %got;
  @%same bra next;
  red.global.add.u64 [%counter], 1;
  atom.global.cas.b64 %old, [%counter+8], 0, %at;
  setp.ne.u64 %later, %old, 0;
  @%later bra next;
  st.global.u32 [%counter+16], %want;
  st.global.u32 [%counter+20], %got;
  bra next;
end:
  ret;
}
)";

void launch(cudaKernel_t kernel, cudaStream_t stream, std::uint64_t words, void** arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(std::min<std::uint64_t>(words / kThreads + 1, kMostBlocks)));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  // The runtime takes a kernel's handle where it takes a function's address.
  must(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments),
       "starting a kernel");
}

}  // namespace

std::string ramps_ptx() { return kPtx; }

std::unique_ptr<Ramps> Ramps::create() {
  std::unique_ptr<Ramps> ramps(new Ramps());
  must(cudaLibraryLoadData(&ramps->library_, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0),
       "compiling the kernels");
  must(cudaLibraryGetKernel(&ramps->fill_, ramps->library_, "gpupool_ramp_fill"), "fill");
  must(cudaLibraryGetKernel(&ramps->check_, ramps->library_, "gpupool_ramp_check"), "check");
  must(cudaMalloc(&ramps->counters_, sizeof(Mismatches)), "memory for counters");
  must(cudaMemset(ramps->counters_, 0, sizeof(Mismatches)), "clearing counters");
  ramps->fill(nullptr, nullptr, 0, {});
  ramps->check(nullptr, nullptr, 0, {});
  must(cudaDeviceSynchronize(), "running the kernels");
  return ramps;
}

Ramps::~Ramps() {
  // At the end, with the device idle; nothing could be done about an error.
  static_cast<void>(cudaFree(counters_));
  if (library_ != nullptr) static_cast<void>(cudaLibraryUnload(library_));
}

void Ramps::fill(cudaStream_t stream, const void* at, std::uint64_t bytes, const Ramp& ramp) {
  const void* address = at;
  std::uint64_t words = bytes / sizeof(std::uint32_t);
  Ramp copy = ramp;
  void* arguments[] = {&address, &words, &copy.seed, &copy.step};
  launch(fill_, stream, words, arguments);
}

void Ramps::check(cudaStream_t stream, const void* at, std::uint64_t bytes, const Ramp& ramp) {
  const void* address = at;
  std::uint64_t words = bytes / sizeof(std::uint32_t);
  Ramp copy = ramp;
  void* arguments[] = {&address, &words, &copy.seed, &copy.step, &counters_};
  launch(check_, stream, words, arguments);
}

Mismatches Ramps::mismatches(cudaStream_t stream) {
  Mismatches found;
  must(cudaMemcpyAsync(&found, counters_, sizeof found, cudaMemcpyDeviceToHost, stream),
       "reading counters");
  must(cudaStreamSynchronize(stream), "waiting for a stream");
  return found;
}

}  // namespace gpupool::gpu_tests
