// NVTX is header-only: its headers, which come with the toolkit, are included here alone.
#include <nvtx3/nvToolsExtMem.h>

#include <iterator>

#include "backend/nvtx_notes.h"

namespace gpupool::internal {
namespace {

nvtxDomainHandle_t domain() {
  // Made at first use: before, no tool is looked for.
  static const nvtxDomainHandle_t created = nvtxDomainCreateA("gpupool");
  return created;
}

nvtxMemVirtualRangeDesc_t range_of(DeviceAddress address, std::size_t bytes) {
  nvtxMemVirtualRangeDesc_t range = {};
  range.size = bytes;
  range.ptr = reinterpret_cast<const void*>(address);
  return range;
}

}  // namespace

void NvtxNotes::add_heap(DeviceAddress address, std::size_t bytes) {
  const nvtxMemVirtualRangeDesc_t range = range_of(address, bytes);
  nvtxMemHeapDesc_t heap = {};
  heap.extCompatID = NVTX_EXT_COMPATID_MEM;
  heap.structSize = sizeof heap;
  heap.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
  heap.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  heap.typeSpecificDescSize = sizeof range;
  heap.typeSpecificDesc = &range;
  nvtxMemHeapHandle_t handle = nvtxMemHeapRegister(domain(), &heap);
  const MutexLock lock(mutex_);
  heaps_[address] = {bytes, handle};
}

void NvtxNotes::remove_heap(DeviceAddress address) {
  void* handle = nullptr;
  {
    const MutexLock lock(mutex_);
    const auto found = heaps_.find(address);
    if (found == heaps_.end()) return;
    handle = found->second.handle;
    heaps_.erase(found);
  }
  nvtxMemHeapUnregister(domain(), static_cast<nvtxMemHeapHandle_t>(handle));
}

void NvtxNotes::add_block(DeviceAddress address, std::size_t bytes) {
  void* handle = nullptr;
  {
    const MutexLock lock(mutex_);
    const auto heap = heaps_.upper_bound(address);
    if (heap == heaps_.begin()) return;
    handle = std::prev(heap)->second.handle;
  }
  const nvtxMemVirtualRangeDesc_t range = range_of(address, bytes);
  nvtxMemRegionsRegisterBatch_t batch = {};
  batch.extCompatID = NVTX_EXT_COMPATID_MEM;
  batch.structSize = sizeof batch;
  batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  batch.heap = static_cast<nvtxMemHeapHandle_t>(handle);
  batch.regionCount = 1;
  batch.regionDescElementSize = sizeof range;
  batch.regionDescElements = &range;
  nvtxMemRegionsRegister(domain(), &batch);
}

void NvtxNotes::remove_block(DeviceAddress address) {
  nvtxMemRegionRef_t block = {};
  block.pointer = reinterpret_cast<const void*>(address);
  nvtxMemRegionsUnregisterBatch_t batch = {};
  batch.extCompatID = NVTX_EXT_COMPATID_MEM;
  batch.structSize = sizeof batch;
  batch.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
  batch.refCount = 1;
  batch.refElementSize = sizeof block;
  batch.refElements = &block;
  nvtxMemRegionsUnregister(domain(), &batch);
}

}  // namespace gpupool::internal
