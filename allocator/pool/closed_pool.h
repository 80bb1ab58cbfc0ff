// What a call is told that comes too late. Note [Fork and exit].
//
// Thread safety: any thread, under no lock, in a forked child too. Cost: a string.
#ifndef GPUPOOL_POOL_CLOSED_POOL_H_
#define GPUPOOL_POOL_CLOSED_POOL_H_

#include "gpupool/status.h"

namespace gpupool::internal {

inline Status closed_pool(bool is_forked) {
  return {Error::not_supported, is_forked
                                    ? "the pool is of the process that this one was forked from"
                                    : "the process is ending, and its driver may be gone"};
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_CLOSED_POOL_H_
