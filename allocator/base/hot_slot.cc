#include "base/hot_slot.h"

namespace gpupool::internal {

constinit thread_local HotSlot hot_slot GPUPOOL_TLS_MODEL;

}  // namespace gpupool::internal
