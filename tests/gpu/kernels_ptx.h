// The kernels' text, in PTX that the driver compiles for the card it finds: the build has no CUDA
// language.
//
// Two modules: one for every card that can map memory, and one for dependent launches, which need
// compute capability 9.0. kernels.h says what each kernel does.
// Thread safety: plain functions.
#ifndef GPUPOOL_TESTS_GPU_KERNELS_PTX_H_
#define GPUPOOL_TESTS_GPU_KERNELS_PTX_H_

#include <string>

namespace gpupool::gpu_tests {

std::string general_ptx();
std::string dependent_ptx();

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_KERNELS_PTX_H_
