// Which block starts at a unit, and the records of all blocks: what a free needs, by arithmetic.
//
//   unit -> entry:  the unit's place in a chunk, or a run whose first or last unit it is
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
#include "runs/run_table.h"

namespace gpupool::internal {

class BlockDirectory {
 public:
  /// `runs` is the owner of the table of units and of the runs' records.
  bool reserve(RunTable& runs, std::uint64_t chunks) {
    entries_ = runs.entries();
    runs_ = runs.records();
    return chunk_addresses_.reserve(chunks) && records_.reserve(chunks * kGranulesPerChunk);
  }

  // For the path of a hit, step by step.
  std::uint32_t entry(std::uint64_t unit) const noexcept { return entries_[unit]; }
  static bool is_in_chunk(std::uint32_t entry) noexcept {
    return (entry & RunTable::kInChunk) != 0;
  }
  /// `granule`: of the arena or of the unit, which makes no difference. Requires: is_in_chunk().
  static std::uint32_t code_of(std::uint32_t entry, std::uint64_t granule) noexcept {
    // The bit that says so is shifted out.
    static_assert(RunTable::kInChunk * kGranulesPerUnit == 0);
    return entry * kGranulesPerUnit + static_cast<std::uint32_t>(granule % kGranulesPerUnit);
  }
  /// Neither free nor in a chunk: a run, or 0 for none.
  static bool is_run(std::uint32_t entry) noexcept { return entry < RunTable::kInChunk; }
  /// The run that may start there, which its own `start` decides; 0: none.
  static RunId run_of(std::uint32_t entry) noexcept { return is_run(entry) ? entry : 0; }

  /// The block that would start there; nothing, or one whose record does not say so, if none does.
  BlockRef find(std::uint64_t unit, std::uint64_t byte_in_unit) const noexcept {
    const std::uint32_t found = entry(unit);
    if (is_in_chunk(found)) {
      return BlockRef::from_code(code_of(found, byte_in_unit / kGranuleBytes));
    }
    const RunId id = run_of(found);
    return {runs_[id].start == unit && byte_in_unit == 0 ? id : 0, 0, 0};
  }
  DeviceAddress address_of_code(std::uint32_t code) const noexcept {
    return chunk_addresses_[code / kGranulesPerChunk].get() +
           code % kGranulesPerChunk * kGranuleBytes;
  }
  /// Requires: the block is live or cached.
  std::uint64_t bytes_of(BlockRef block) const noexcept {
    if (block.is_run()) return runs_[block.run].units * kUnitBytes;
    return kBinBytes[record(block).load().bin()];
  }

  BlockRecord& record(BlockRef block) noexcept {
    return block.is_run() ? runs_[block.run].record : records_[block.code()];
  }
  const BlockRecord& record(BlockRef block) const noexcept {
    return block.is_run() ? runs_[block.run].record : records_[block.code()];
  }
  BlockRecord* records() noexcept { return &records_[0]; }
  Run* runs() noexcept { return runs_; }

  void add_chunk(ChunkId id, std::uint64_t start, DeviceAddress address) noexcept {
    chunk_addresses_[id].set(address);
    for (std::uint32_t i = 0; i < kUnitsPerChunk; ++i) {
      entries_[start + i] = RunTable::kInChunk | (id * kUnitsPerChunk + i);
    }
  }
  void remove_chunk(std::uint64_t start) noexcept {
    for (std::uint32_t i = 0; i < kUnitsPerChunk; ++i) entries_[start + i] = 0;
  }

 private:
  Racy<std::uint32_t>* entries_ = nullptr;             // by unit, of the runs' table
  Run* runs_ = nullptr;                                // by id
  LazyArray<Relaxed<DeviceAddress>> chunk_addresses_;  // by chunk
  LazyArray<BlockRecord> records_;                     // by code
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_BLOCK_DIRECTORY_H_
