// The hint to the processor that a thread waits by looking again and again.
#ifndef GPUPOOL_BASE_SPIN_H_
#define GPUPOOL_BASE_SPIN_H_

namespace gpupool::internal {

inline void pause_briefly() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_SPIN_H_
