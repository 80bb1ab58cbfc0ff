// How often each private pool was begun and not yet released. PyTorch begins one for every graph
// that shares it, and releases it with every one that is destroyed: the others still use its
// memory. The pool itself takes each of the two as said once for all.
//
// Thread safety: all from any thread.
#ifndef GPUPOOL_INTEGRATIONS_TORCH_POOL_USES_H_
#define GPUPOOL_INTEGRATIONS_TORCH_POOL_USES_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>

#include "integrations/torch/plugin/gpupool_torch.h"

namespace gpupool::torch {

class PoolUses {
 public:
  void begin(int device, const gpupool_torch_pool_id& id) {
    const std::lock_guard lock(mutex_);
    ++uses_[{device, id.first, id.second}];
  }
  /// Whether that was the last use; of a pool that was never begun, too.
  bool release(int device, const gpupool_torch_pool_id& id) {
    const std::lock_guard lock(mutex_);
    const auto known = uses_.find({device, id.first, id.second});
    if (known == uses_.end()) return true;
    if (--known->second > 0) return false;
    uses_.erase(known);
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<int, std::uint64_t, std::uint64_t>, std::uint64_t> uses_;
};

}  // namespace gpupool::torch

#endif  // GPUPOOL_INTEGRATIONS_TORCH_POOL_USES_H_
