// Tells a tool by NVTX's memory extension which parts of an allocation are in use: Compute
// Sanitizer then finds accesses to memory of the pool that nobody holds (run it with --nvtx yes).
//
// Heaps are whole allocations of the driver. Where no tool is attached each call is one comparison,
// after the first, which looks for one (NVTX_INJECTION64_PATH).
//
// Thread safety: any thread; the lock guards the heaps' handles alone. Cost: as the tool.
#ifndef GPUPOOL_BACKEND_NVTX_NOTES_H_
#define GPUPOOL_BACKEND_NVTX_NOTES_H_

#include <cstdint>
#include <map>

#include "base/mutex.h"
#include "gpupool/backend.h"

namespace gpupool::internal {

class NvtxNotes final : public BlockNotes {
 public:
  void add_heap(DeviceAddress address, std::size_t bytes) override;
  void remove_heap(DeviceAddress address) override;
  void add_block(DeviceAddress address, std::size_t bytes) override;
  void remove_block(DeviceAddress address) override;

 private:
  struct Heap {
    std::uint64_t bytes = 0;
    void* handle = nullptr;
  };

  Mutex mutex_;
  std::map<DeviceAddress, Heap> heaps_ GPUPOOL_GUARDED_BY(mutex_);
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_NVTX_NOTES_H_
