// What a call says of an argument that it does not take.
//
// Thread safety: a plain function. Cost: a string, on paths that set something up.
#ifndef GPUPOOL_BASE_INVALID_H_
#define GPUPOOL_BASE_INVALID_H_

#include <string>
#include <utility>

#include "gpupool/status.h"

namespace gpupool::internal {

/// `message` begins with the argument's name.
inline Status invalid(std::string message) { return {Error::invalid_argument, std::move(message)}; }

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_INVALID_H_
