// Names one block, whatever tier it lives in: a run, or a granule of a chunk.
#ifndef GPUPOOL_POOL_BLOCK_REF_H_
#define GPUPOOL_POOL_BLOCK_REF_H_

#include "buddy/chunk.h"
#include "runs/run.h"

namespace gpupool::internal {

struct BlockRef {
  RunId run = 0;  // of a run block; 0 for a block inside a chunk
  ChunkId chunk = 0;
  std::uint32_t granule = 0;  // where it starts in the chunk

  bool exists() const noexcept { return run != 0 || chunk != 0; }
  bool is_run() const noexcept { return run != 0; }

  /// A block inside a chunk as one number, for the links of the caches; 0: none.
  std::uint32_t code() const noexcept { return chunk * kGranulesPerChunk + granule; }
  static BlockRef from_code(std::uint32_t code) noexcept {
    return {0, code / kGranulesPerChunk, code % kGranulesPerChunk};
  }
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_BLOCK_REF_H_
