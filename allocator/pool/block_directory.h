// Which block starts at a unit, and the records of all blocks: what a free needs, by arithmetic.
//
//   unit -> entry:  a run block that starts there, or the unit's place in a chunk; else nothing
//   place in a chunk and granule in the unit -> code -> record
//
// Thread safety: written under the pool's lock, read by any thread. For an address that the caller
// holds the answer is stable; for others it may be out of date, which is why whoever takes a block
// by its record compares the address once it is his.
// Cost: two loads to a block's record.
#ifndef GPUPOOL_POOL_BLOCK_DIRECTORY_H_
#define GPUPOOL_POOL_BLOCK_DIRECTORY_H_

#include <cstdint>

#include "base/block_record.h"
#include "base/lazy_array.h"
#include "base/relaxed.h"
#include "base/units.h"
#include "cache/bin.h"
#include "gpupool/backend.h"
#include "pool/block_ref.h"

namespace gpupool::internal {

class BlockDirectory {
 public:
  bool reserve(std::uint64_t units, std::uint64_t runs, std::uint64_t chunks) {
    return entries_.reserve(units + 1) && runs_.reserve(runs) && chunk_addresses_.reserve(chunks) &&
           records_.reserve(chunks * kGranulesPerChunk);
  }

  // For the path of a hit, step by step.
  std::uint32_t entry(std::uint64_t unit) const noexcept { return entries_[unit].get(); }
  static bool is_run(std::uint32_t entry) noexcept { return (entry & kRunEntry) != 0; }
  static RunId run_of(std::uint32_t entry) noexcept { return entry & ~kRunEntry; }
  /// `granule`: of the arena or of the unit, which makes no difference.
  static std::uint32_t code_of(std::uint32_t entry, std::uint64_t granule) noexcept {
    return entry * kGranulesPerUnit + static_cast<std::uint32_t>(granule % kGranulesPerUnit);
  }

  /// The block that would start there; nothing, or one whose record does not say so, if none does.
  BlockRef find(std::uint64_t unit, std::uint64_t byte_in_unit) const noexcept {
    const std::uint32_t found = entry(unit);
    if (found == 0) return {};
    if (is_run(found)) return {byte_in_unit == 0 ? run_of(found) : 0, 0, 0};
    return BlockRef::from_code(code_of(found, byte_in_unit / kGranuleBytes));
  }
  DeviceAddress address_of_code(std::uint32_t code) const noexcept {
    return chunk_addresses_[code / kGranulesPerChunk].get() +
           code % kGranulesPerChunk * kGranuleBytes;
  }
  DeviceAddress address_of(BlockRef block) const noexcept {
    return block.is_run() ? runs_[block.run].address.get() : address_of_code(block.code());
  }
  /// Requires: the block is live or cached.
  std::uint64_t bytes_of(BlockRef block) const noexcept {
    if (block.is_run()) return runs_[block.run].units.get() * kUnitBytes;
    return kBinBytes[record(block).load().bin()];
  }

  BlockRecord& record(BlockRef block) noexcept {
    return block.is_run() ? runs_[block.run].record : records_[block.code()];
  }
  const BlockRecord& record(BlockRef block) const noexcept {
    return block.is_run() ? runs_[block.run].record : records_[block.code()];
  }
  BlockRecord* records() noexcept { return &records_[0]; }
  RunBlock* run_blocks() noexcept { return &runs_[0]; }

  void add_run(RunId id, std::uint64_t start, DeviceAddress address, std::uint32_t units) noexcept {
    runs_[id].address.set(address);
    runs_[id].units.set(units);
    entries_[start].set(kRunEntry | id);
  }
  void remove_run(std::uint64_t start) noexcept { entries_[start].set(0); }
  void add_chunk(ChunkId id, std::uint64_t start, DeviceAddress address) noexcept {
    chunk_addresses_[id].set(address);
    for (std::uint32_t i = 0; i < kUnitsPerChunk; ++i) {
      entries_[start + i].set(id * kUnitsPerChunk + i);
    }
  }
  void remove_chunk(std::uint64_t start) noexcept {
    for (std::uint32_t i = 0; i < kUnitsPerChunk; ++i) entries_[start + i].set(0);
  }

 private:
  static constexpr std::uint32_t kRunEntry = std::uint32_t{1} << 31;

  LazyArray<Relaxed<std::uint32_t>> entries_;          // by unit
  LazyArray<RunBlock> runs_;                           // by run id
  LazyArray<Relaxed<DeviceAddress>> chunk_addresses_;  // by chunk
  LazyArray<BlockRecord> records_;                     // by code
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_BLOCK_DIRECTORY_H_
