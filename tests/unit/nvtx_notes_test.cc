// What a tool that attaches by NVTX is told, with a tool linked into this program.
#include "backend/nvtx_notes.h"

#include <gtest/gtest.h>
#include <nvtx3/nvToolsExtMem.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gpupool::internal {
namespace {

struct Event {
  std::string what;
  const void* pointer = nullptr;
  std::size_t bytes = 0;
  const void* heap = nullptr;
  friend bool operator==(const Event&, const Event&) = default;
};

std::vector<Event>& events() {
  static std::vector<Event> list;
  return list;
}

nvtxMemHeapHandle_t NVTX_API on_heap(nvtxDomainHandle_t, const nvtxMemHeapDesc_t* heap) {
  EXPECT_EQ(heap->usage, static_cast<std::uint32_t>(NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR));
  EXPECT_EQ(heap->type, static_cast<std::uint32_t>(NVTX_MEM_TYPE_VIRTUAL_ADDRESS));
  const auto* const range = static_cast<const nvtxMemVirtualRangeDesc_t*>(heap->typeSpecificDesc);
  events().push_back({"heap", range->ptr, range->size, nullptr});
  return reinterpret_cast<nvtxMemHeapHandle_t>(reinterpret_cast<std::uintptr_t>(range->ptr) + 1);
}
void NVTX_API on_heap_gone(nvtxDomainHandle_t, nvtxMemHeapHandle_t heap) {
  events().push_back({"heap gone", nullptr, 0, heap});
}
void NVTX_API on_block(nvtxDomainHandle_t, const nvtxMemRegionsRegisterBatch_t* batch) {
  EXPECT_EQ(batch->regionCount, 1u);
  const auto* const range =
      static_cast<const nvtxMemVirtualRangeDesc_t*>(batch->regionDescElements);
  events().push_back({"block", range->ptr, range->size, batch->heap});
}
void NVTX_API on_block_gone(nvtxDomainHandle_t, const nvtxMemRegionsUnregisterBatch_t* batch) {
  EXPECT_EQ(batch->refCount, 1u);
  events().push_back({"block gone", batch->refElements[0].pointer, 0, nullptr});
}

int NVTX_API attach(nvtxExtModuleInfo_t* module) {
  if (module->moduleId != NVTX_EXT_MODULEID_MEM) return 0;
  intptr_t* const slots = module->segments[0].functionSlots;
  slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = reinterpret_cast<intptr_t>(on_heap);
  slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = reinterpret_cast<intptr_t>(on_heap_gone);
  slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = reinterpret_cast<intptr_t>(on_block);
  slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = reinterpret_cast<intptr_t>(on_block_gone);
  return 1;
}

}  // namespace
}  // namespace gpupool::internal

extern "C" {
/// By this name NVTX finds a tool that is linked in.
NvtxExtInitializeInjectionFunc_t InitializeInjectionNvtxExtension_fnptr = gpupool::internal::attach;
}

namespace gpupool::internal {
namespace {

const void* at(DeviceAddress address) { return reinterpret_cast<const void*>(address); }

TEST(NvtxNotesTest, AToolIsToldOfHeapsAndBlocks) {
  NvtxNotes notes;
  notes.add_heap(0x10000, 0x8000);
  notes.add_heap(0x40000, 0x2000);
  notes.add_block(0x10200, 100);
  notes.add_block(0x41000, 512);
  notes.remove_block(0x10200);
  notes.remove_heap(0x40000);
  notes.remove_heap(0x77777);  // none
  const std::vector<Event> expected = {
      {"heap", at(0x10000), 0x8000, nullptr},   {"heap", at(0x40000), 0x2000, nullptr},
      {"block", at(0x10200), 100, at(0x10001)}, {"block", at(0x41000), 512, at(0x40001)},
      {"block gone", at(0x10200), 0, nullptr},  {"heap gone", nullptr, 0, at(0x40001)}};
  EXPECT_EQ(events(), expected);
}

}  // namespace
}  // namespace gpupool::internal
