// Which pages of 2 MiB a pool cannot do without, from what a program knows: a page is occupied
// while a byte of a live block lies on it, or a byte of a freed block whose work is unfinished. All
// others are empty, and a pool that recycles pages owes them to any request:
//
//   room_pages = (capacity - driver allocations of their own) / page - occupied pages
//
// What it knows of the pool is only what it promises: an event covers all that its stream was given
// before it, so a freed block may count as unfinished as long as a stream that freed or used it has
// not been seen idle by a call that empties caches and looks for completed work (clear).
//
// What lies in a chunk of small blocks has one set of tickets there, so that a small block counts
// as unfinished for those, too, who used its bytes before.
//
// Addresses are those that the pool gave; a page that was moved while memory on it was pending
// counts at both places, so that the room is never overestimated.
//
// Thread safety: none. Cost: O(log blocks) a change, O(blocks) a question.
#ifndef GPUPOOL_TESTS_SUPPORT_OCCUPANCY_H_
#define GPUPOOL_TESTS_SUPPORT_OCCUPANCY_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "tests/support/model.h"

namespace gpupool::test {

class Occupancy {
 public:
  static constexpr std::uint64_t kPageBytes = std::uint64_t{2} << 20;
  /// Of a block that shares a chunk with others.
  static constexpr std::uint64_t kMaxSmallBytes = std::uint64_t{128} << 10;
  /// Streams with unfinished work.
  using Busy = std::set<StreamKey>;

  Occupancy(std::uint64_t capacity_bytes, std::uint64_t reserve_bytes)
      : capacity_bytes_(capacity_bytes), reserve_bytes_(reserve_bytes) {}

  /// `plain_bytes`: of the driver allocation that the block is; 0: it lies in the arena.
  void add(std::uint64_t address, std::uint64_t bytes, std::uint64_t plain_bytes);
  /// Freed; `users`: the stream that freed it, and those that the pool was told of. `for_ever`: no
  /// event will tell of one of them, so that of a small block its chunk stays where it is, too.
  void remove(std::uint64_t address, std::vector<StreamKey> users, bool for_ever = false);
  /// Forgets freed blocks none of whose users is busy.
  void clear(const Busy& busy);

  /// Adds the pages that freed blocks with unfinished work lie on.
  void add_pending_pages(const Busy& busy, std::set<std::uint64_t>& pages) const;
  /// Empty pages: one request for up to so many must be served.
  std::uint64_t room_pages(const Busy& busy) const;
  /// The same in bytes for a driver allocation of its own; the reserve is the arena's alone.
  std::uint64_t plain_room_bytes(const Busy& busy) const;

 private:
  struct Live {
    std::uint64_t bytes = 0;
    std::uint64_t plain_bytes = 0;
    std::vector<StreamKey> former_users;  // of small blocks
  };
  struct Freed {
    std::uint64_t end = 0;
    std::vector<StreamKey> users;
  };
  struct FreedPlain {
    std::uint64_t bytes = 0;
    std::vector<StreamKey> users;
  };
  struct Occupied {
    std::uint64_t pages = 0;
    std::uint64_t plain_bytes = 0;
  };

  Occupied occupied(const Busy& busy) const;
  /// Takes a live block's range out of what was freed before; whose that was.
  std::vector<StreamKey> cover(std::uint64_t begin, std::uint64_t end);

  std::uint64_t capacity_bytes_;
  std::uint64_t reserve_bytes_;
  std::map<std::uint64_t, Live> live_;
  std::map<std::uint64_t, Freed> freed_;  // disjoint, by address
  std::vector<FreedPlain> freed_plain_;
  std::set<std::uint64_t> chunk_pages_;  // that a chunk may lie on which waits for ever
};

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SUPPORT_OCCUPANCY_H_
