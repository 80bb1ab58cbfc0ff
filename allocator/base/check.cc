#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace gpupool::internal {

void check_failed(const char* file, int line, const char* condition) noexcept {
  std::fprintf(stderr, "gpupool: internal error: %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace gpupool::internal
