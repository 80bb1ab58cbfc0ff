// A misuse in words, for whoever writes PoolOptions::misuse_handler.
//
// Thread safety: plain functions. Cost: strings.
#ifndef GPUPOOL_MISUSE_TEXT_H_
#define GPUPOOL_MISUSE_TEXT_H_

#include <span>
#include <string>

#include "gpupool/stats.h"

namespace gpupool {

/// One line with everything that the report has: kind, address, the block and its size, what was
/// given, the tag. `tags` are PoolOptions::tags; without them the tag is shown by its index.
std::string misuse_text(const MisuseReport& report, std::span<const std::string> tags = {});

}  // namespace gpupool

#endif  // GPUPOOL_MISUSE_TEXT_H_
