// A pool of one device's memory: size classes, buddy blocks and runs over an arena of pages that
// grows on demand, with stream-ordered reuse and full accounting.
//
//   auto backend = gpupool::open_cuda_backend(0);           // or SimulatedBackend
//   auto pool = gpupool::Pool::create(*backend.value(), {});
//   auto stream = pool.value()->adopt_stream(cuda_stream).value();
//   void* p = pool.value()->allocate(bytes, stream).value();
//   pool.value()->deallocate(p, stream);
//
// Stream order: memory freed on a stream may be reused at once by that stream; by another only as
// CrossStreamPolicy says. deallocate() tells the pool that every use of the block, and its
// allocation, is ordered before later work of the stream it names.
//
// Errors: allocation failures are values with a report (last_failure); misuse is counted, reported
// and refused, and leaves the state unchanged, but for a use that cannot be told (record_stream).
// Nothing here throws.
// Thread safety: all methods may be called from any thread at the same time, unless said otherwise.
// A block may be freed by another thread than the one that allocated it.
// Cost: docs/DESIGN.md. A hit makes no driver call and takes nothing from the host's heap. Each
// thread keeps what it has just freed on each stream: a request that this serves takes no lock, nor
// does such a free. The short forms with a StreamRef are the quickest way in, and a thread that
// stays on one stream is quicker than one that changes streams at each call.
#ifndef GPUPOOL_POOL_H_
#define GPUPOOL_POOL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gpupool/backend.h"
#include "gpupool/failure_report.h"
#include "gpupool/observer.h"
#include "gpupool/options.h"
#include "gpupool/record.h"
#include "gpupool/stats.h"
#include "gpupool/status.h"
#include "gpupool/stream.h"
#include "gpupool/tag.h"

namespace gpupool {

/// What kind of physical memory a block is made of.
enum class AllocationClass : std::uint8_t {
  normal,      // anything
  contiguous,  // one driver allocation or handle (ContiguousBacking): for NCCL, RDMA and IPC
};

/// Names a private pool, as PyTorch's MempoolId_t; {0, 0}: none.
struct CapturePoolId {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  friend bool operator==(CapturePoolId a, CapturePoolId b) noexcept {
    return a.first == b.first && a.second == b.second;
  }
};

/// Private pools of this first number are made by the pool itself, for captures that nobody
/// announced; they can be released, and not begun.
inline constexpr std::uint64_t kUnannounced = ~std::uint64_t{0};
/// The private pool of such a capture, by the number that cudaStreamGetCaptureInfo has for it.
inline constexpr CapturePoolId unannounced_capture(std::uint64_t capture) noexcept {
  return {kUnannounced, capture};
}

inline constexpr std::size_t kDefaultAlignment = 512;
inline constexpr std::size_t kMaxAlignment = std::size_t{2} << 20;

/// A request in full; the short forms of allocate() use the defaults.
struct AllocationRequest {
  std::size_t bytes = 0;
  /// A power of two up to kMaxAlignment; smaller than 512 counts as 512.
  std::size_t alignment = kDefaultAlignment;
  Tag tag = kCurrentTag;
  AllocationClass allocation_class = AllocationClass::normal;
  /// The private pool that serves it, begun or not; {0, 0}: as the stream says.
  CapturePoolId capture_pool;
};

/// How a request would be served now.
enum class Fit : std::uint8_t {
  now,            // without the driver
  by_growth,      // the pool would grow
  after_pending,  // once pending work is complete
  no,
};
const char* to_string(Fit value) noexcept;

/// What visit_blocks shows.
enum class BlockState : std::uint8_t { live, cached, pending, free };
const char* to_string(BlockState value) noexcept;

struct BlockInfo {
  DeviceAddress address = 0;
  std::uint64_t bytes = 0;            // of the block
  std::uint64_t requested_bytes = 0;  // live blocks
  BlockState state = BlockState::free;
  Tier tier = Tier::run;
  bool is_fallback = false;
  Tag tag = kUntagged;
  std::uint64_t stream_id = 0;  // live: that allocated it; cached, pending: that freed it; else 0
  std::uint64_t tick = 0;       // pool time of that, to the nearest maintenance step, ns
  /// The cudaStream_t that names that stream now, as a number; none: it has ended.
  std::optional<std::uint64_t> stream_handle;
};

using BlockVisitor = std::function<void(const BlockInfo&)>;

/// What of the driver's a block lies in, for passing it to another process or to a network adapter.
struct ExportInfo {
  enum class Kind : std::uint8_t {
    cudamalloc,  // cudaIpcGetMemHandle takes it
    handle,      // cuMemRetainAllocationHandle and cuMemExportToShareableHandle take it
  };
  Kind kind = Kind::cudamalloc;
  DeviceAddress base = 0;    // of the allocation, which is what the other side opens
  std::uint64_t bytes = 0;   // of the allocation
  std::uint64_t offset = 0;  // of `pointer` in it
};

struct MaintainReport {
  std::uint64_t released_bytes = 0;
  std::uint64_t completed_epochs = 0;
  bool more_to_do = false;  // the budget ran out first
};

class Pool {
 public:
  /// Starts a pool on `backend`, which outlives it. Errors name the option that is wrong.
  /// Cost: a reservation of addresses, plus growth to `reserve_bytes`.
  static Result<std::unique_ptr<Pool>, Status> create(Backend& backend, PoolOptions options);
  /// Gives everything back; blocks still live are reported as a leak. No stream may be in use, and
  /// no thread in a call of this pool; threads that have used it may go on, or end at any time.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Streams.
  /// Makes `stream` known; the same stream gives the same reference until it is released. One that
  /// is first made known while it is captured itself cannot be told from another of its handle when
  /// that has ended: adopt it anew then, the first reference is refused.
  Result<StreamRef> adopt_stream(RawStream stream);
  /// Announces that the stream is about to be destroyed; its pending memory stays safe, and what
  /// threads have cached for it goes back to the shared tiers.
  /// False, counted, where the reference is not of this pool or already released.
  bool release_stream(StreamRef stream);

  // Allocation. 0 bytes: nullptr, counts nothing, valid to free.
  /// Errors: out_of_memory, limit_exceeded, invalid_argument, backend_failure, not_supported.
  Result<void*> allocate(std::size_t bytes, StreamRef stream);
  Result<void*> allocate(const AllocationRequest& request, StreamRef stream);
  Result<void*> allocate(std::size_t bytes, RawStream stream) {
    AllocationRequest request;
    request.bytes = bytes;
    return allocate_raw(request, resolve_default_stream(stream));
  }
  Result<void*> allocate(const AllocationRequest& request, RawStream stream) {
    return allocate_raw(request, resolve_default_stream(stream));
  }
  /// True if the block was given back; false where the call was refused as misuse (counted).
  /// nullptr is valid and does nothing. Never takes memory from the host's heap.
  /// Of several frees of one block, by whichever threads, one is taken and the others are refused
  /// as double frees, until the address is handed out again: then it is the new holder's block.
  bool deallocate(void* pointer, StreamRef stream);
  bool deallocate(void* pointer, RawStream stream) {
    return deallocate_raw(pointer, kNoSize, resolve_default_stream(stream));
  }
  /// The sized form: another size than was asked for is counted and ignored.
  bool deallocate(void* pointer, std::size_t bytes, StreamRef stream);
  bool deallocate(void* pointer, std::size_t bytes, RawStream stream) {
    return deallocate_raw(pointer, bytes, resolve_default_stream(stream));
  }
  /// For whoever will use the block on streams of any kind at once: with no work on it left,
  /// whoever had it before. Follows the legacy default stream, and waits for what that has been
  /// given, which is what every blocking stream has been given, too. Not while a capture forbids
  /// that (not_supported). Cost: a wait for the device; not for paths that must be quick.
  Result<void*> allocate_for_any_stream(const AllocationRequest& request);
  /// For a block that no stream uses any more: it waits for nobody. False as deallocate().
  /// Requires: all work on it is complete, or ordered before later work of the legacy stream.
  bool deallocate_unused(void* pointer, std::size_t bytes);
  /// The block is used by `stream`, too: after its free nobody else gets it before what that
  /// stream has been given by then is complete.
  /// False, counted: no live block starts there, or the pool cannot tell which stream that is (a
  /// reference that is released or another pool's, a handle that the driver does not know). Then
  /// the use has no event to wait for, and a live block is held back: after its free nobody gets it
  /// before the whole device was waited for, as requests do before they fail, and trim(): but for
  /// while a capture or a private pool is open, when that is not done. Later launches of a graph
  /// are not waited for by that: only a use that can be told keeps a block for a graph.
  bool record_stream(void* pointer, StreamRef stream);
  bool record_stream(void* pointer, RawStream stream) {
    return record_raw(pointer, resolve_default_stream(stream), true);
  }
  /// The same for what `stream` has been given by now.
  bool record_use(void* pointer, StreamRef stream);
  bool record_use(void* pointer, RawStream stream) {
    return record_raw(pointer, resolve_default_stream(stream), false);
  }
  /// The program has made `destination` wait for all that `source` was given so far: what `source`
  /// has freed by now may be reused by `destination` at once, and what `source` was allowed so
  /// before, too; but not under CrossStreamPolicy::never. What threads have cached for `source`
  /// goes to the shared tiers. False where not all of it can be had so: of another thread's own
  /// default stream, of a stream that is captured or not known.
  bool note_dependency(StreamRef source, StreamRef destination);

  // Graph capture. What a graph uses has to stay where it is, mapped and nobody else's, until the
  // graph is gone: so it comes from a private pool, which may grow during the capture. What is
  // freed there is reused at once by requests of the same stream to the same private pool, and by
  // nobody else; a graph that is launched again finds its memory as it left it. A capture that was
  // not announced in any of these ways gets a private pool of its own, see unannounced_capture():
  // its memory stays pinned until that is released, or the pool ends.
  /// From now on requests on streams for which `takes` gives true are served from the private pool
  /// `id`, made where there is none. Idempotent; of several the one that was begun last counts.
  /// `takes` is called under no lock of ours, on the thread that allocates or frees, and must not
  /// throw. Meanwhile every call takes the pool's lock, and other threads than this one, which is
  /// to be the one that captures, ask nothing of streams that it may capture, and record nothing
  /// for them. Waits for a thread that is about to, or that waits for the device for
  /// release_pool(). Errors: {0, 0}, kUnannounced, an empty function.
  Result<void, Status> begin_allocate_to_pool(CapturePoolId id,
                                              std::function<bool(RawStream)> takes);
  /// Its memory stays; what was served is freed as ever. Idempotent, and valid without a begin.
  Result<void, Status> end_allocate_to_pool(CapturePoolId id);
  /// The graphs (or the MemPool) that use the private pool are gone, and will not be launched
  /// again. Memory that is free in it goes back to everybody once all work of the device is
  /// complete, for which maintain(), trim() and requests that would be refused wait, as soon as no
  /// capture is known; live blocks go back as they are freed. Idempotent; the id may be begun anew
  /// at once.
  Result<void, Status> release_pool(CapturePoolId id);
  /// The same for the owner of a StreamRef: announces that a capture of the stream begins, of which
  /// the pool is not told otherwise, by this thread, and that it has ended. Both idempotent.
  Result<void, Status> begin_capture(StreamRef stream, CapturePoolId id);
  Result<void, Status> end_capture(StreamRef stream);

  // Questions.
  /// The requested size of a live block; nothing for any other address.
  Result<std::size_t> find_size(const void* pointer) const;
  /// The handle of the stream that a live block was asked for on; none where that has ended, and
  /// another stream's where its place in the pool's table was given to one since. An error for any
  /// other address.
  Result<std::optional<RawStream>> find_stream(const void* pointer) const;
  /// How memory at `pointer`, in a live block, can be passed on. The error says in words why it
  /// cannot, before the driver would with "invalid argument": memory of pages (Backing::vmm) can be
  /// exported neither by legacy IPC nor as one handle; AllocationClass::contiguous can.
  Result<ExportInfo, Status> find_export(const void* pointer) const;
  /// Cached memory counts as occupied, as in StatsV1; a request may find it all the same.
  Fit would_fit(std::size_t bytes, StreamRef stream) const;
  Fit would_fit(std::size_t bytes) const { return would_fit(bytes, StreamRef()); }
  /// The same for the stream that maps and reports have under this number; nothing where the pool
  /// has none of it, or no more. 0 is no stream's number.
  std::optional<Fit> would_fit_on(std::size_t bytes, std::uint64_t stream_id) const;
  /// A snapshot in which the equations of StatsV1 hold. Threads that are served by their caches go
  /// on meanwhile: their part is as of some moment during the call. Makes no driver call; holds the
  /// pool's lock for a copy and one step for each thread. Hits do not wait for it.
  StatsV1 stats() const;
  /// Calls `visitor` for every block and free piece, by rising address inside the arena, fallbacks
  /// last. Holds the pool's lock: for tests and snapshots; the visitor must not call the pool.
  /// Blocks that threads take from their caches meanwhile are shown as they were or as they are.
  void visit_blocks(const BlockVisitor& visitor) const;
  /// The same for pools that others use meanwhile: a part at a time, so that nobody waits for the
  /// lock longer than about 30 us, and `visitor` is called under no lock. What it shows is of
  /// several moments, and what changes in between may be missing, in part too, or shown twice.
  void visit_blocks_in_parts(const BlockVisitor& visitor) const;
  FailureReport last_failure() const;
  Result<Tag> find_tag(std::string_view name) const;
  const std::string& name() const noexcept;
  const std::vector<std::string>& tag_names() const noexcept;
  const DeviceInfo& device() const noexcept;
  RuntimeOptions runtime_options() const;

  // Upkeep.
  /// Gives empty memory back to the driver until at most `target_held_bytes` are held (never below
  /// the reserve), and what waits to go back anyhow: fallbacks that are done with, and what the
  /// driver refused to take before. A segment of cudaMalloc of which the reserve needs less than
  /// half goes as well, and an exact one is got in its place. Returns the bytes by which less is
  /// held.
  std::uint64_t trim(std::uint64_t target_held_bytes, TrimReason reason = TrimReason::api);
  /// Changes what may change while running. On an error nothing has changed.
  Result<void, Status> reconfigure(const RuntimeOptions& options);
  /// Another limit from now on: bytes, or a fraction of what the device has free and the pool
  /// holds. More serves requests at once. Less than is held takes nothing from anybody: what is
  /// empty goes back with the next maintain() or trim(), and requests that would have to grow fail
  /// until enough has. Refused, and nothing changed: what create() would not take, less than the
  /// reserve, and more than there are addresses for, which is at least four times what the pool was
  /// created with. Waits for growth that is under way.
  Result<void, Status> set_capacity(CapacityLimit capacity);
  /// One step of upkeep: closes epochs, looks for completed work, reads the device's free memory,
  /// and gives back to the shared tiers what caches have not used for two seconds. Stops soon after
  /// `budget` is used up.
  MaintainReport maintain(std::chrono::nanoseconds budget = std::chrono::milliseconds(1));
  /// Empties the caches of all threads into the shared tiers and looks for completed work. Returns
  /// the bytes moved. Waits for a thread that the scheduler has stopped inside its cache, as trim()
  /// and release_stream() do; a request only before it would fail.
  std::uint64_t drain_caches();
  /// Peaks start again from what is now.
  void reset_peaks();

  // Recording.
  /// From now on what the pool is asked for is written to `path`, whatever was there before, as a
  /// trace that `gpupool replay` plays; first the blocks that are live now. See record.h. While it
  /// goes on every call takes the pool's lock, and a thread of the recording's own writes the file.
  /// Errors name the path and the reason: it cannot be written, the pool records already, an option
  /// is wrong. Cost: a copy of what is live, under the pool's lock.
  Result<void, Status> record(const std::string& path, RecordOptions options = {});
  /// Ends the recording, as the pool's end does, and waits for the file. The error names the path
  /// and why it could not be written to the end; what is there is a trace all the same.
  Result<RecordReport, Status> stop_recording();
  /// Reads what lies behind each live block (DebugOptions::canary); gives how many were written to
  /// since it was last called, each a Misuse::canary that the free will not report again. Waits for
  /// the legacy stream. Blocks freed meanwhile are not looked at. 0 where the option is off.
  std::uint64_t check_canaries();
  /// A free came with the ordinal of another device than the pool's: counts and reports that. The
  /// free itself goes on: the pool trusts its own table.
  void note_wrong_device(const void* pointer, int device);
  /// Ends the program if a structure of the pool contradicts itself. Requires: no other thread is
  /// in a call of this pool. For tests; slow.
  void check_invariants() const;

 private:
  class Impl;
  static constexpr std::size_t kNoSize = ~std::size_t{0};

  explicit Pool(std::unique_ptr<Impl> impl);
  Result<void*> allocate_raw(const AllocationRequest& request, RawStream stream);
  bool deallocate_raw(void* pointer, std::size_t bytes, RawStream stream);
  bool record_raw(void* pointer, RawStream stream, bool at_free);

  std::unique_ptr<Impl> impl_;
};

}  // namespace gpupool

#endif  // GPUPOOL_POOL_H_
