// Operations on a pool and its device as values: what the random tests, the fault sweep and the
// shrinker are made of. A list of them is a whole test; each can be applied and printed.
//
// Blocks and streams are named by number, so that a list keeps its meaning when operations are
// taken out of it: an operation on a block that is not live, or on a stream that is not there,
// does nothing. Whatever a correct program must order, apply() orders (World::order): a list is
// always legal, whatever is in it.
#ifndef GPUPOOL_TESTS_SUPPORT_OPERATION_H_
#define GPUPOOL_TESTS_SUPPORT_OPERATION_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "gpupool/faulty_backend.h"
#include "gpupool/pool.h"

namespace gpupool::test {

class World;
using BlockName = std::uint32_t;
using StreamSlot = std::uint32_t;

/// Allocates, and lets the device touch the block at once, so that it judges the allocation.
struct Allocate {
  BlockName block = 0;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = kDefaultAlignment;
  StreamSlot stream = 0;
  AllocationClass allocation_class = AllocationClass::normal;
  std::uint8_t tag = 0xff;
  bool is_raw = false;  // by the stream's handle instead of its StreamRef
  void apply(World& world) const;
};

/// What the driver is asked for a block outside of the arena: in steps of 512 bytes, with room to
/// begin at a boundary that the driver does not promise.
std::uint64_t plain_bytes_of(const Allocate& it);

/// One block of all pages that are empty by then, or of a part of them: where pages are recycled it
/// may not be refused (World::is_judged; else this does nothing).
struct AllocateWhatMustFit {
  BlockName block = 0;
  StreamSlot stream = 0;
  std::uint64_t percent = 100;
  std::uint64_t alignment = kDefaultAlignment;
  void apply(World& world) const;
};

enum class SizeHint : std::uint8_t { none, right, wrong };

struct Free {
  BlockName block = 0;
  StreamSlot stream = 0;
  SizeHint hint = SizeHint::none;
  bool is_raw = false;
  void apply(World& world) const;
};

/// A free that the pool has to refuse; `block` says near which block.
enum class BadFreeKind : std::uint8_t { freed_before, interior, foreign, released_stream };
struct BadFree {
  BadFreeKind kind = BadFreeKind::freed_before;
  BlockName block = 0;
  StreamSlot stream = 0;
  std::uint32_t offset = 1;  // interior: modulo the block's size
  void apply(World& world) const;
};

/// Work on a block, given to any stream. 0 ns: until CompleteStream or CompleteAll says so.
struct Launch {
  BlockName block = 0;
  StreamSlot stream = 0;
  std::uint64_t duration_ns = 0;
  void apply(World& world) const;
};

struct RecordStream {
  BlockName block = 0;
  StreamSlot stream = 0;
  void apply(World& world) const;
};

struct RecordUse {
  BlockName block = 0;
  StreamSlot stream = 0;
  void apply(World& world) const;
};

struct CompleteStream {
  StreamSlot stream = 0;
  void apply(World& world) const;
};

struct CompleteAll {
  void apply(World& world) const;
};

struct Advance {
  std::uint64_t ns = 0;
  void apply(World& world) const;
};

struct Maintain {
  void apply(World& world) const;
};

struct Trim {
  std::uint64_t target_bytes = 0;
  void apply(World& world) const;
};

struct DrainCaches {
  void apply(World& world) const;
};

/// The n-th call of a kind from now on fails.
struct FailNext {
  BackendCall call = BackendCall::create;
  std::uint64_t n = 1;
  Error error = Error::out_of_memory;
  void apply(World& world) const;
};

/// Ends a stream with whatever runs on it: announced if it was adopted, else just destroyed.
struct ReleaseStream {
  StreamSlot stream = 0;
  void apply(World& world) const;
};

/// A stream where there is none; one that is not adopted is known to the pool by its handle alone.
struct NewStream {
  StreamSlot stream = 0;
  bool is_adopted = true;
  void apply(World& world) const;
};

struct TakenByOthers {
  std::uint64_t bytes = 0;
  void apply(World& world) const;
};

using Operation = std::variant<Allocate, AllocateWhatMustFit, Free, BadFree, Launch, RecordStream,
                               RecordUse, CompleteStream, CompleteAll, Advance, Maintain, Trim,
                               DrainCaches, FailNext, ReleaseStream, NewStream, TakenByOthers>;
using OperationList = std::vector<Operation>;

/// As C++, for a named regression: "Allocate{.block = 3, .bytes = 4096, ...}".
std::string to_text(const Operation& operation);
std::string to_text(const OperationList& list);

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SUPPORT_OPERATION_H_
