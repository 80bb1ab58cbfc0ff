// Tiers T1 to T3 together: what all streams share below the caches. Takes blocks out of slabs,
// chunks and runs for a stream, and puts them back with the tickets of who may still use them.
//
//   free bytes in chunks = sum of Chunk::free_bytes;   pending = of chunks with unfinished tickets
//   a chunk that is wholly free goes back to the runs, with its tickets
//   out_bytes() = bytes of the blocks taken and not put back, live or in a cache
//
// Thread safety: under the pool's lock. Cost: O(1) for slots and buddy blocks while the stream has
// room in a chunk, O(log runs) else; no memory from the heap once a stream is known.
#ifndef GPUPOOL_POOL_SHARED_TIERS_H_
#define GPUPOOL_POOL_SHARED_TIERS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "arena/address_map.h"
#include "base/lazy_array.h"
#include "buddy/chunk.h"
#include "cache/bin.h"
#include "gpupool/stats.h"
#include "pool/block_directory.h"
#include "pool/block_ref.h"
#include "runs/run_table.h"
#include "size_class/slab.h"
#include "stream/stream_table.h"

namespace gpupool::internal {

class SharedTiers {
 public:
  SharedTiers(StreamTable& streams, const std::vector<std::uint64_t>& watched_sizes)
      : streams_(streams), runs_(streams, watched_sizes) {}

  /// `addresses` outlives the tiers' use.
  bool reserve(const AddressMap& addresses, std::uint64_t unit_capacity,
               std::uint64_t max_backed_units, const Arena& arena);
  void know_stream(StreamIndex stream);

  // Each gives a block whose record says cached, by `stream`, or one that does not exist.
  BlockRef take_slot(SizeClass size_class, StreamIndex stream, Reach reach);
  BlockRef take_buddy(std::uint32_t units, StreamIndex stream, Reach reach);
  BlockRef take_bin(std::uint32_t bin, StreamIndex stream, Reach reach) {
    return is_slot_bin(bin) ? take_slot(static_cast<SizeClass>(bin), stream, reach)
                            : take_buddy(units_of_bin(bin), stream, reach);
  }
  BlockRef take_run(std::uint32_t units, std::uint32_t align_units, StreamIndex stream,
                    Reach reach) {
    const RunId id = runs_.take(units, align_units, stream, reach, RunKind::block);
    if (id == 0) return {};
    Run& run = runs_[id];
    run.record.store(BlockWord::cached(BlockWord::kNoBin, stream));
    out_bytes_ += units * kUnitBytes;
    return {id, 0, 0};
  }
  /// A run that other streams have freed, and that `stream` comes after anyhow; 0 if there is none.
  RunId find_ordered(std::uint32_t units, std::uint32_t align_units, StreamIndex stream) const {
    return runs_.find_of_others(units, align_units,
                                [&](Ticket ticket) { return streams_.is_after(stream, ticket); });
  }
  /// A block of that run.
  BlockRef take_found(RunId id, std::uint32_t units, std::uint32_t align_units,
                      StreamIndex stream) {
    const RunId taken = runs_.take_found(id, units, align_units, RunKind::block);
    runs_[taken].record.store(BlockWord::cached(BlockWord::kNoBin, stream));
    out_bytes_ += units * kUnitBytes;
    return {taken, 0, 0};
  }
  /// A chunk of that run, which is the stream's from now on.
  void make_chunk_of(RunId id, StreamIndex stream) {
    begin_chunk(runs_.take_found(id, kUnitsPerChunk, kWithinPage, RunKind::chunk), stream);
  }
  void put(BlockRef block, const TicketSet& tickets);
  void put_run(RunId id, const TicketSet& tickets) {
    Run& run = runs_[id];
    out_bytes_ -= run.units * kUnitBytes;
    run.record.clear();
    runs_.put(id, tickets);
  }
  /// Whether take_slot() would need no new slab.
  bool has_open_slab(SizeClass size_class, StreamIndex stream) const;
  /// Whether the take of that kind would give a block now. `stream` may be one never seen.
  bool has_slot(SizeClass size_class, StreamIndex stream) const;
  bool has_buddy(std::uint32_t units, StreamIndex stream) const;
  /// After work has become complete.
  void refresh();
  /// `stream` comes after more than before.
  void note_order(StreamIndex stream);

  /// The run that `unit` belongs to, as far as the table of units says.
  RunId run_at(std::uint64_t unit) const noexcept {
    const std::uint32_t entry = directory_.entry(unit);
    if (!BlockDirectory::is_in_chunk(entry)) return runs_.at(unit);
    return chunks_[BlockRef::from_code(BlockDirectory::code_of(entry, 0)).chunk].run;
  }
  /// What lies at a byte of the arena.
  struct Found {
    BlockRef block;         // that starts there or covers it; may not exist
    bool is_start = false;  // the byte is the block's first
  };
  Found find(std::uint64_t unit, std::uint64_t byte_in_unit) const;
  /// The block that covers `unit`, by looking at every run: for reports of misuse.
  Found find_slowly(std::uint64_t unit, std::uint64_t byte_in_unit) const;

  BlockRecord& record(BlockRef block) noexcept { return directory_.record(block); }
  const BlockRecord& record(BlockRef block) const noexcept { return directory_.record(block); }
  std::uint64_t bytes_of(BlockRef block) const noexcept { return directory_.bytes_of(block); }
  Tier tier_of(BlockRef block) const noexcept;
  /// First unit, and the byte in it.
  std::uint64_t unit_of(BlockRef block) const noexcept;
  std::uint64_t byte_in_unit(BlockRef block) const noexcept {
    return block.is_run() ? 0 : block.granule % kGranulesPerUnit * kGranuleBytes;
  }

  RunTable& runs() noexcept { return runs_; }
  const RunTable& runs() const noexcept { return runs_; }
  /// What leads from an address to a block, for whoever asks without the pool's lock.
  BlockDirectory& directory() noexcept { return directory_; }
  const BlockDirectory& directory() const noexcept { return directory_; }
  const Chunk& chunk(ChunkId id) const noexcept { return chunks_[id]; }
  const Slab& slab(SlabId id) const noexcept { return slabs_[id]; }
  /// The slab that covers a unit of a chunk, 0 if none does.
  SlabId slab_at(ChunkId chunk, std::uint32_t unit) const noexcept {
    const std::uint32_t half = unit / kUnitsPerHalf;
    const std::uint8_t code = chunks_[chunk].slab_class[half];
    if (code == 0) return 0;
    return chunk * 2 + (kSizeClasses[code - 1U].slab_units == kUnitsPerHalf ? half : 0);
  }

  /// Of chunks that are the stream's.
  std::uint64_t chunk_bytes_of(StreamIndex stream) const noexcept {
    return lists_[stream]->chunk_count * kChunkBytes;
  }
  std::uint64_t out_bytes() const noexcept { return out_bytes_; }
  std::uint64_t chunk_free_bytes() const noexcept { return chunk_free_bytes_; }
  std::uint64_t chunk_pending_bytes() const noexcept { return chunk_pending_bytes_; }
  std::uint64_t slab_tail_bytes() const noexcept { return slab_tail_bytes_; }
  /// What is free in chunks that are not pending and could serve a request of `bytes`: slots of its
  /// size class, and the largest free block of each chunk that has room for it, or for its slab.
  std::uint64_t usable_chunk_bytes(std::uint64_t bytes) const noexcept;
  /// Calls `visit(stream, free bytes)` for each chunk with unfinished work: of that stream, or of
  /// kNobody, which stands for several.
  template <class Visit>
  void for_each_pending_chunk(Visit visit) const {
    for (ChunkId id = pending_; id != 0; id = chunks_[id].pending_next) {
      if (chunks_[id].is_pending) visit(chunks_[id].tickets.holder(), chunks_[id].free_bytes);
    }
  }
  std::uint64_t metadata_bytes() const noexcept;
  void add_to(StatsV1& stats) const;
  void check_invariants() const;

 private:
  /// Where one stream has room: slabs by class and fullness, chunks by their largest free buddy.
  struct StreamLists {
    std::array<std::array<SlabId, 4>, kSizeClassCount> slabs{};
    std::array<ChunkId, kUnitsPerChunk + 1> chunks{};
    std::uint64_t rooms = 0;  // bit r: chunks[r] is not empty
    std::uint64_t chunk_count = 0;
  };

  static constexpr std::uint32_t kUnitsPerHalf = kUnitsPerChunk / 2;

  ChunkId make_chunk(StreamIndex stream, Reach reach);
  ChunkId begin_chunk(RunId run, StreamIndex stream);
  void end_chunk(ChunkId id);
  void keep_for_owner(Chunk& chunk);
  /// Whose work on the chunk is not complete.
  StreamIndex unfinished_holder(const Chunk& chunk) const;
  ChunkId chunk_with_room(std::uint32_t units, StreamIndex stream, Reach reach);
  SlabId make_slab(SizeClass size_class, StreamIndex stream, Reach reach);
  void end_slab(SlabId id);
  BlockRef hand_out(BlockRef block, std::uint32_t bin, StreamIndex stream);
  void put_in_chunk(BlockRef block, const TicketSet& tickets);
  bool is_foreign(const TicketSet& tickets, StreamIndex owner) const {
    return !tickets.is_at_most_of(owner) && is_of_others(tickets, owner);
  }
  bool is_of_others(const TicketSet& tickets, StreamIndex owner) const;
  void free_foreign(ChunkId id);
  void change_free_bytes(Chunk& chunk, std::uint64_t delta) {
    // Unsigned arithmetic wraps both ways: a negative delta is 0 - bytes.
    chunk.free_bytes += delta;
    chunk_free_bytes_ += delta;
    if (chunk.is_pending) chunk_pending_bytes_ += delta;
  }
  void change_slot_bytes(const Chunk& chunk, SizeClass size_class, std::uint64_t delta) {
    if (!chunk.is_pending) ready_slot_bytes_[size_class] += delta;
  }

  // tier_lists.cc: each puts a chunk or slab into the list where it belongs now. Most often it
  // stands there already.
  void relist_chunk(ChunkId id);
  void unlist_chunk(ChunkId id);
  void relist_slab(SlabId id) {
    const Slab& slab = slabs_[id];
    const bool stays = slab.is_listed && slab.has_free() && slab.listed_fullness == slab.fullness();
    if (!stays) move_slab(id);
  }
  void move_slab(SlabId id);
  void unlist_slab(SlabId id);
  void set_pending(ChunkId id, bool is_pending) {
    if (chunks_[id].is_pending != is_pending) change_pending(id, is_pending);
  }
  void change_pending(ChunkId id, bool is_pending);

  Found find_in_chunk(ChunkId id, std::uint32_t unit, std::uint64_t byte_in_unit) const;
  void check_chunk(ChunkId id) const;

  StreamTable& streams_;
  const AddressMap* addresses_ = nullptr;
  RunTable runs_;
  LazyArray<Chunk> chunks_;
  LazyArray<Slab> slabs_;
  BlockDirectory directory_;
  std::vector<std::unique_ptr<StreamLists>> lists_;
  ChunkId unused_ = 0;   // list of chunk records, through `next`
  ChunkId pending_ = 0;  // list through pending_next
  ChunkId chunk_end_ = 1;
  std::uint64_t chunk_count_ = 0;
  std::uint64_t slab_count_ = 0;
  std::uint64_t out_bytes_ = 0;
  std::uint64_t chunk_free_bytes_ = 0;
  std::uint64_t chunk_pending_bytes_ = 0;
  std::uint64_t slab_tail_bytes_ = 0;
  std::array<std::uint64_t, kUnitsPerChunk + 1> chunks_by_room_{};  // listed ones
  // Of chunks that are not pending.
  std::array<std::uint64_t, kUnitsPerChunk + 1> ready_by_room_{};
  std::array<std::uint64_t, kSizeClassCount> ready_slot_bytes_{};  // free slots
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_SHARED_TIERS_H_
