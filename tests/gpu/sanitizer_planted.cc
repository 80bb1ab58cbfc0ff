// A use after free, on purpose: a kernel reads a block that was given back to the pool. Without a
// tool nothing is wrong, as the memory is still the pool's; under
//
//   compute-sanitizer --nvtx yes sanitizer_planted freed
//
// it is to be reported as an access to memory of a pool that nobody holds. `sanitizer_planted live`
// reads the block before it is freed, and is to be clean. Exits 0 where the kernel ran.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "gpupool/cuda_backend.h"
#include "gpupool/pool.h"
#include "tests/gpu/kernels.h"

namespace {

using namespace gpupool;

constexpr std::size_t kBytes = std::size_t{1} << 20;

int fail(const char* what, const std::string& why) {
  std::fprintf(stderr, "sanitizer_planted: %s: %s\n", what, why.c_str());
  return 2;
}

}  // namespace

int main(int argument_count, char** arguments) {
  const bool is_freed = argument_count == 2 && std::strcmp(arguments[1], "freed") == 0;
  if (!is_freed && !(argument_count == 2 && std::strcmp(arguments[1], "live") == 0)) {
    return fail("usage", "sanitizer_planted freed|live");
  }
  auto backend = open_cuda_backend(0);
  if (!backend.ok()) return fail("device", backend.error().message);
  auto kernels = gpu_tests::Kernels::create();
  if (!kernels.ok()) return fail("kernels", kernels.error().message);
  PoolOptions options;
  options.backing = Backing::cudamalloc;
  options.debug.nvtx = true;
  auto pool = Pool::create(*backend.value(), options);
  if (!pool.ok()) return fail("pool", pool.error().message);
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
    return fail("stream", "not made");
  }
  const StreamRef ref = pool.value()->adopt_stream(stream).value();
  const auto block = pool.value()->allocate(kBytes, ref);
  if (!block.ok()) return fail("block", pool.value()->last_failure().text());
  const gpu_tests::Pattern pattern{reinterpret_cast<DeviceAddress>(block.value()), kBytes, 1};
  if (auto filled = kernels.value()->fill(stream, pattern); !filled.ok()) {
    return fail("fill", filled.error().message);
  }
  if (is_freed) static_cast<void>(pool.value()->deallocate(block.value(), ref));
  if (auto read = kernels.value()->check(stream, pattern); !read.ok()) {
    return fail("read", read.error().message);
  }
  const cudaError_t done = cudaStreamSynchronize(stream);
  if (!is_freed) static_cast<void>(pool.value()->deallocate(block.value(), ref));
  std::printf("the kernel %s\n", done == cudaSuccess ? "ran" : cudaGetErrorString(done));
  return done == cudaSuccess ? 0 : 1;
}
