// GPUPOOL_CHECK: a broken invariant of the pool's own, in every build. Reusing live memory in
// silence is worse than a crash, so it prints where and what, and aborts.
#ifndef GPUPOOL_BASE_CHECK_H_
#define GPUPOOL_BASE_CHECK_H_

namespace gpupool::internal {

/// The one place in the allocator that writes to stderr, since the program ends here.
[[noreturn]] void check_failed(const char* file, int line, const char* condition) noexcept;

}  // namespace gpupool::internal

#define GPUPOOL_CHECK(condition)                     \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::gpupool::internal::check_failed(__FILE__, __LINE__, #condition))

#endif  // GPUPOOL_BASE_CHECK_H_
