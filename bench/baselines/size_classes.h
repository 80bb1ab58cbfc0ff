// Segregated storage: a size is rounded up to its class, each class has a list of free blocks, and
// a block stays in its class for ever: never cut, never joined. The simple segregated storage of
// Wilson, Johnstone, Neely and Boles, "Dynamic Storage Allocation" (1995), 3.6, with the classes of
// jemalloc: steps of 512 bytes to 4 KiB, then four classes a doubling (rounding <= 25 %).
//
// A class of up to kSlabBytes / 4 grows by a slab of kSlabBytes, cut once into blocks of the class;
// a larger one by one driver allocation a block. Both stay; where the device is full, slabs in
// which nothing is live go back to the driver.
//
// Streams: lists for each. A block is in a list of the stream that freed it.
//
// Invariants: every block is live or in exactly one list of its class; held = sum of all slabs.
// Thread safety: none. Cost: O(1), no driver call once warm; memory that one class has is never
// another's, however the sizes shift.
#ifndef GPUPOOL_BENCH_BASELINES_SIZE_CLASSES_H_
#define GPUPOOL_BENCH_BASELINES_SIZE_CLASSES_H_

#include <array>
#include <list>
#include <memory>
#include <vector>

#include "bench/baselines/address_map.h"
#include "bench/baselines/allocation_system.h"
#include "gpupool/backend.h"

namespace gpupool::baselines {

class SizeClasses final : public AllocationSystem {
 public:
  static constexpr std::uint64_t kSlabBytes = std::uint64_t{2} << 20;
  /// Enough for 2^62 bytes; no device has as much.
  static constexpr std::size_t kClassCount = 208;

  struct SizeClass {
    std::size_t index = 0;
    std::uint64_t bytes = 0;  // of its blocks
  };
  /// Requires: 0 < bytes <= 2^62.
  static SizeClass class_of(std::uint64_t bytes);

  /// Requires: `backend` outlives the system.
  SizeClasses(Backend& backend, std::size_t stream_count)
      : backend_(backend), lists_(stream_count) {}
  ~SizeClasses() override;

  Result<void*> allocate(std::uint64_t bytes, StreamIndex stream) override;
  bool deallocate(void* pointer, StreamIndex stream) override;
  std::string find_fault() const override;

 private:
  struct Slab;
  struct Block {
    DeviceAddress address = 0;
    Slab* slab = nullptr;
    Block* next = nullptr;  // in a free list
    bool is_live = false;
  };
  struct Slab {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;
    std::size_t class_index = 0;
    std::size_t live_count = 0;
    std::vector<Block> blocks;
    bool is_gone = false;  // back at the driver; only while it is being taken out
  };
  using Lists = std::array<Block*, kClassCount>;

  Result<void> add_slab(const SizeClass& size_class, StreamIndex stream);
  bool give_back_unused();

  Backend& backend_;
  std::vector<Lists> lists_;  // by stream
  AddressMap<Block> blocks_;  // all, live or free
  std::list<Slab> slabs_;     // a list, since blocks point to them
};

}  // namespace gpupool::baselines

#endif  // GPUPOOL_BENCH_BASELINES_SIZE_CLASSES_H_
