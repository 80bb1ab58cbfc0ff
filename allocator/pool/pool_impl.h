// The pool behind Pool: routes requests through the tiers, grows the arena, keeps the books.
// What it knows, and which lock guards what: pool_state.h. Split by what is done, a file each.
#ifndef GPUPOOL_POOL_POOL_IMPL_H_
#define GPUPOOL_POOL_POOL_IMPL_H_

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/hot_slot.h"
#include "gpupool/pool.h"
#include "pool/cross_stream.h"
#include "pool/fault.h"
#include "pool/growth_round.h"
#include "pool/ladder.h"
#include "pool/private_serving.h"
#include "pool/shape.h"
#include "pool/target.h"

namespace gpupool {

class Pool::Impl : private internal::CrossStream {
  friend class Pool;

 public:
  Impl(Backend& backend, PoolOptions options);
  ~Impl();

  Result<void, Status> start();  // the part of it that can fail

  Result<StreamRef> adopt_stream(RawStream raw);
  bool release_stream(StreamRef stream);
  /// `was_asked`: the cache at hand has nothing for it.
  Result<void*> allocate_cold(const AllocationRequest& request, internal::StreamState* stream,
                              bool was_asked, std::optional<CaptureState> capture = {});
  /// `waits`: the caller will for work of the device, so that whatever serves it, it is no hit.
  Result<void*> allocate_raw(const AllocationRequest& request, RawStream raw, bool waits = false);
  Result<void*> allocate_for_any_stream(const AllocationRequest& request);
  bool deallocate_raw(void* pointer, std::size_t bytes, RawStream raw);
  bool record_use(void*, internal::StreamState*, std::optional<CaptureState>, bool at_free);
  bool note_dependency(StreamRef source, StreamRef destination);

  Result<std::size_t> find_size(const void* pointer) const;
  std::optional<Fit> would_fit(std::size_t bytes, StreamRef stream, std::uint64_t stream_id = 0);
  StatsV1 stats();
  void visit_blocks(const BlockVisitor& visitor) const;
  void visit_blocks_in_parts(const BlockVisitor& visitor) const;
  FailureReport last_failure() const;
  RuntimeOptions runtime_options() const;
  const PoolOptions& options() const noexcept { return options_; }
  const DeviceInfo& device() const noexcept { return driver_.backend().info(); }

  std::uint64_t trim(std::uint64_t target_held_bytes, TrimReason reason);
  Result<void, Status> reconfigure(const RuntimeOptions& options);
  Result<void, Status> set_capacity(const CapacityLimit& capacity);
  MaintainReport maintain(std::chrono::nanoseconds budget);
  Result<void, Status> start_recording(const std::string& path, const RecordOptions& options);
  Result<RecordReport, Status> stop_recording();
  std::uint64_t drain_caches();
  void reset_peaks();
  void check_invariants() const;

 private:
  using BlockRef = internal::BlockRef;
  using Shape = internal::Shape;
  using StreamIndex = internal::StreamIndex;
  using StreamState = internal::StreamState;
  using ThreadRecord = internal::ThreadRecord;
  using LadderLog = internal::LadderLog;
  using ThreadCache = internal::ThreadCache;
  using PageSupply = internal::PageSupply;
  using GrowthRound = internal::GrowthRound;
  using RunId = internal::RunId;
  using TicketSet = internal::TicketSet;
  using ExtraUse = internal::ExtraUse;
  using Target = internal::Target;

  // hit.cc
  enum class Outcome : std::uint8_t {
    done,
    noted,      // done, and there is something to look at: see ThreadCounters
    left_over,  // taken from its holder, and not in a cache yet
    refused,    // nothing has changed
  };
  // Each for the cache at hand. With the full chain: also looks behind the one in use.
  template <bool kWithFullChain>
  Outcome take_small(const internal::HotSlot& hot, std::size_t bytes, Tag tag, void*& out);
  Outcome take_run_at_hand(const internal::HotSlot& hot, std::size_t bytes, Tag tag, void*& out);
  Outcome put_small_at_hand(const internal::HotSlot& hot, std::uint64_t unit, std::uint32_t entry,
                            std::uint64_t granule, std::size_t bytes);
  Outcome put_run_at_hand(const internal::HotSlot& hot, std::uint64_t unit, RunId id,
                          std::size_t bytes);
  Result<void*> allocate_large(std::size_t bytes, StreamState* stream);
  Result<void*> allocate_plain_cold(std::size_t bytes, StreamState* stream);
  Result<void*> allocate_noted(void* block, std::size_t bytes);
  void note_allocation(std::size_t bytes) GPUPOOL_EXCLUDES(mu_);
  bool deallocate(void* pointer, std::size_t bytes, StreamState* stream);
  bool deallocate_large(void* pointer, StreamState* stream, std::uint64_t granule);
  bool deallocate_large_sized(void* pointer, std::size_t bytes, StreamState* stream,
                              std::uint64_t granule);
  bool finish_free(Outcome outcome, void* pointer, std::size_t bytes, StreamState* stream);
  /// nullptr, false: go on as if there were no cache.
  void* take_thoroughly(std::size_t bytes, Tag tag, bool is_timed) GPUPOOL_EXCLUDES(mu_);
  bool put_thoroughly(void* pointer, std::size_t bytes) GPUPOOL_EXCLUDES(mu_);

  // hand_out.h
  internal::BlockWord tagged(internal::BlockWord word, Tag tag, std::size_t bytes,
                             ThreadRecord& record) const;
  void* make_small_live(const internal::HotSlot& hot, const ThreadCache& cache,
                        internal::BlockRecord* records, std::uint32_t code, std::uint32_t bin,
                        std::size_t bytes, Tag tag);
  void* make_run_live(const internal::HotSlot& hot, const ThreadCache& cache, RunId id,
                      std::size_t bytes, Tag tag);

  // miss.cc: what the cache at hand does not have
  Result<void*> miss_small(std::size_t bytes, StreamState* stream) GPUPOOL_EXCLUDES(mu_);
  Result<void*> miss_run(std::size_t bytes, StreamState* stream) GPUPOOL_EXCLUDES(mu_);
  std::uint32_t take_small_shared(ThreadCache& cache, std::uint32_t bin) GPUPOOL_REQUIRES(mu_);
  /// No cache has the run. May let go of the lock, to look for what is complete.
  void note_run_miss(ThreadCache& cache, std::uint32_t units) GPUPOOL_REQUIRES(mu_);
  RunId take_run_shared(ThreadCache& cache, std::uint32_t units) GPUPOOL_REQUIRES(mu_);

  /// The granule of the arena's first range that begins at `address`; where none does, below the
  /// base or inside a granule, a number beyond range_granules_.
  std::uint64_t granule_in_range(DeviceAddress address) const noexcept {
    return std::rotr(address - range_base_, internal::log2_floor(internal::kGranuleBytes));
  }
  std::uint32_t code_of(Tag tag) const noexcept {
    if (tag == kUntagged || tag.index() >= tag_count_) return internal::BlockWord::kUntaggedCode;
    return tag.index();
  }
  DeviceAddress address_of_unit(std::uint64_t unit) const noexcept {
    if (unit * internal::kGranulesPerUnit < range_granules_) [[likely]]
      return range_base_ + unit * internal::kUnitBytes;
    return addresses_->address_of(unit);
  }
  void* address_of(BlockRef block) noexcept {
    internal::BlockDirectory& directory = tiers_.directory();
    return reinterpret_cast<void*>(block.is_run()
                                       ? address_of_unit(directory.runs()[block.run].start)
                                       : directory.address_of_code(block.code()));
  }

  // allocate.cc
  /// Beyond any device, and safe to round and to count in units of 4 KiB.
  static constexpr std::uint64_t kMaxRequestBytes = std::uint64_t{1} << 43;
  Result<void*> allocate_shared(const AllocationRequest& request, StreamState* stream,
                                ThreadRecord* record, bool is_timed,
                                std::optional<CaptureState> capture, bool waits = false);
  std::optional<internal::Fault> find_fault(const AllocationRequest& request) const
      GPUPOOL_REQUIRES(mu_);
  BlockRef take_shared(const Shape& shape, const StreamState* stream, internal::Reach reach)
      GPUPOOL_REQUIRES(mu_);
  /// Whether take_after_reclaim() would only take from the arena's end.
  bool has_nothing_to_reclaim(const ThreadRecord& record, StreamIndex stream) const
      GPUPOOL_REQUIRES(mu_);
  BlockRef take_after_reclaim(const AllocationRequest& request, const Shape& shape,
                              const StreamState* stream, ThreadRecord* record, LadderLog& log)
      GPUPOOL_REQUIRES(mu_);
  /// Gives back what caches hold and completed work has set free, until the block is there before
  /// the arena's end. `has_looked`: at what is complete, as far as that was of use.
  BlockRef reclaim(const Shape& shape, const StreamState* stream, ThreadRecord* record,
                   bool& has_looked, LadderLog& log) GPUPOOL_REQUIRES(mu_);
  /// Makes the block live, and the request served. With guards on it lets go of the lock before;
  /// an error: they could not fill the block, and it is back in the tiers.
  Result<void*> hand_out(BlockRef block, const AllocationRequest& request,
                         const StreamState& stream, ThreadRecord* record) GPUPOOL_REQUIRES(mu_);
  Error refuse_stream(const AllocationRequest&, const StreamState*) GPUPOOL_REQUIRES(mu_);

  // threads.cc
  ThreadRecord* own_record() GPUPOOL_EXCLUDES(mu_);  // nullptr where the thread gets none
  ThreadRecord* find_own_record() const;
  /// Counts go here for threads without a record.
  internal::ThreadCounters& counters_of(ThreadRecord* record) GPUPOOL_REQUIRES(mu_);
  /// Whether the hot slot has the thread's cache for the stream, perhaps only now.
  bool has_at_hand(ThreadRecord& record, const StreamState* stream);
  /// The thread's cache for the stream where it has one, at hand from now on.
  ThreadCache* switch_to(ThreadRecord& record, const StreamState* stream);
  ThreadCache* open_cache(ThreadRecord* record, const StreamState* stream) GPUPOOL_REQUIRES(mu_);
  static void on_thread_exit(void* impl, void* record);
  void end_thread(ThreadRecord& record) GPUPOOL_EXCLUDES(mu_);
  void end_own_stream(const ThreadRecord& record) GPUPOOL_EXCLUDES(events_mu_, mu_);
  void forget_threads() GPUPOOL_EXCLUDES(mu_);  // for the pool's end

  // caching.cc
  /// A run that its holder has given back and that the cache at hand has no room for.
  bool finish_run_free(RunId id) GPUPOOL_EXCLUDES(mu_);
  /// Whether the thread has an epoch to close: the cache is of its own stream.
  bool note_own_free(const ThreadCache& cache) GPUPOOL_REQUIRES(mu_);
  /// A block that its holder has given back and that the cache at hand had no room for.
  void put_left_over(DeviceAddress address) GPUPOOL_EXCLUDES(mu_);
  /// A block that is left over, of a stream that has ended since it was taken.
  void put_after_end(const ThreadCache& cache, BlockRef block) GPUPOOL_REQUIRES(mu_);
  void put_cached(ThreadCache* cache, BlockRef block, StreamIndex stream) GPUPOOL_REQUIRES(mu_);
  void put_small(ThreadCache& cache, std::uint32_t bin, std::uint32_t code) GPUPOOL_REQUIRES(mu_);
  void put_run(ThreadCache& cache, RunId id, std::uint32_t units) GPUPOOL_REQUIRES(mu_);
  BlockRef take_cached(ThreadCache& cache, const Shape& shape) GPUPOOL_REQUIRES(mu_);
  BlockRef take_handed_over(ThreadCache& cache, const Shape& shape) GPUPOOL_REQUIRES(mu_);
  /// After a miss: more blocks of the same kind, where they cost nothing.
  void refill(ThreadCache& cache, std::uint32_t bin) GPUPOOL_REQUIRES(mu_);
  void set_run_limit(ThreadCache& cache) GPUPOOL_REQUIRES(mu_);
  std::uint64_t run_limit_of(const ThreadCache& cache) const noexcept {
    return std::min(run_share_bytes_.get(), cache.depot->demand().worth_bytes());
  }
  /// Gives the tiers what the cache has beyond what it is worth.
  void shrink_to_worth(ThreadCache& cache) GPUPOOL_REQUIRES(mu_);
  void add_run_cache(ThreadCache& cache) GPUPOOL_REQUIRES(mu_);
  void update_run_share() GPUPOOL_REQUIRES(mu_);

  // hand_over.cc: each by the owner, inside its claim or under mu_
  /// Hands over the chain that take_chain() would take. False: nothing has changed.
  bool hand_over_small(ThreadCache& cache, std::uint32_t bin);
  /// The batch is still to be cut off its cache where it was handed over.
  bool hand_over_runs(ThreadCache& cache, const internal::RunBatch& batch);
  /// Takes back what depots may have and do not; returns how much that is.
  std::uint64_t collect_idle_quota() GPUPOOL_REQUIRES(mu_);
  /// A run that its holder has given back: whether the cache has it, after half of what was there
  /// has gone on. Enters the claim.
  bool put_run_handing_over(ThreadCache& cache, RunId id) GPUPOOL_EXCLUDES(mu_);
  internal::RunBatch take_batch(ThreadCache& cache, std::uint32_t units, std::uint32_t most);
  /// As much of a batch as the cache has room for.
  RunId take_run_quickly(ThreadCache& cache, std::uint32_t units);
  /// A whole batch; what the cache has no room for goes to the tiers.
  RunId take_handed_over_run(ThreadCache& cache, std::uint32_t units) GPUPOOL_REQUIRES(mu_);
  // The same of a chain of small blocks, but that it is the whole chain or nothing.
  std::uint32_t take_small_quickly(ThreadCache& cache, std::uint32_t bin);
  std::uint32_t take_handed_over_small(ThreadCache& cache, std::uint32_t bin) GPUPOOL_REQUIRES(mu_);

  // draining.cc: each flush gives blocks to the shared tiers and returns their bytes
  std::uint64_t flush(internal::Chain chain, StreamIndex stream) GPUPOOL_REQUIRES(mu_);
  std::uint64_t flush(const internal::RunChain& chain, StreamIndex stream) GPUPOOL_REQUIRES(mu_);
  /// Out of the cache unused, for somebody or something else.
  std::uint64_t let_go(const internal::RunChain& chain, ThreadCache& cache) GPUPOOL_REQUIRES(mu_);
  std::uint64_t flush_runs(ThreadCache& cache) GPUPOOL_REQUIRES(mu_);
  /// The size nearest to `units` in the thread's cache of the stream.
  std::uint64_t flush_nearest_runs(ThreadRecord* record, StreamIndex stream, std::uint32_t units)
      GPUPOOL_REQUIRES(mu_);
  std::uint64_t flush_own_runs(ThreadRecord* record) GPUPOOL_REQUIRES(mu_);
  std::uint64_t flush_bin(ThreadCache& cache, std::uint32_t bin) GPUPOOL_REQUIRES(mu_);
  std::uint64_t flush(ThreadCache& cache) GPUPOOL_REQUIRES(mu_);
  // Who was stopped inside his cache or a depot's lock is passed over, or waited for: `must`.
  std::optional<std::uint64_t> flush_depot(StreamIndex stream, bool must) GPUPOOL_REQUIRES(mu_);
  std::uint64_t flush_depots() GPUPOOL_REQUIRES(mu_);
  bool has_handed_over() const GPUPOOL_REQUIRES(mu_);  // whether any depot has anything
  std::uint64_t depot_bytes() const noexcept;  // perhaps more than there are; 0: there are none
  std::uint64_t flush_own(ThreadRecord* record) GPUPOOL_REQUIRES(mu_);
  /// The caches of all threads but `record`'s that `is_meant`.
  template <class F, class G>
  std::uint64_t for_claimed(const ThreadRecord* record, bool must, F is_meant, G visit)
      GPUPOOL_REQUIRES(mu_);
  std::uint64_t flush_others(const ThreadRecord* record) GPUPOOL_REQUIRES(mu_);
  std::uint64_t drain_all() GPUPOOL_REQUIRES(mu_);
  /// Those that were left and are free by now; the others are barred.
  std::uint64_t flush_passed_over(internal::PassedOver& left) GPUPOOL_REQUIRES(mu_);
  std::uint64_t drain_patiently() GPUPOOL_EXCLUDES(mu_);  // waits for whom the first pass left
  /// Cached blocks that nobody took for this long go back to the shared tiers: longer than most
  /// training steps, so that what each step uses once stays.
  static constexpr std::uint64_t kCacheAgeNs = 2'000'000'000;
  void age_caches(std::uint64_t now_ns) GPUPOOL_REQUIRES(mu_);
  void flush_caches(StreamIndex stream) GPUPOOL_REQUIRES(mu_);  // of all threads, for a stream
  void end_caches(StreamIndex stream, const ThreadRecord* record) GPUPOOL_REQUIRES(mu_);

  // peaks.cc
  /// A shard's live bytes have moved by a step.
  void note_step(ThreadRecord& record) GPUPOOL_EXCLUDES(mu_);
  void note_step_locked(ThreadRecord* record) GPUPOOL_REQUIRES(mu_);
  /// Notes the most that was requested at once, as far as the shards tell; gives what is live now.
  std::uint64_t fold_peaks() GPUPOOL_REQUIRES(mu_);
  void arm(ThreadRecord& record) GPUPOOL_REQUIRES(mu_);
  void arm_all() GPUPOOL_REQUIRES(mu_);
  void rearm_all() GPUPOOL_REQUIRES(mu_);

  // failing.cc
  Error fail(const AllocationRequest& request, internal::Fault fault, const StreamState* stream)
      GPUPOOL_REQUIRES(mu_);
  /// `was_served`: it was counted so, and as a miss; its block was given back.
  Error fail(const FailureReport& report, bool was_served = false) GPUPOOL_REQUIRES(mu_);
  FailureReport report_of(const AllocationRequest& request, internal::Fault fault,
                          const StreamState* stream, const LadderLog& log) GPUPOOL_REQUIRES(mu_);
  void count_miss(const AllocationRequest& request, MissReason reason, const StreamState* stream,
                  const LadderLog& log) GPUPOOL_REQUIRES(mu_);

  // ladder.cc: see Note [The ladder]
  class Ladder;
  Result<void*> allocate_slowly(const AllocationRequest& request, const Shape& shape,
                                StreamState* stream, ThreadRecord* record, LadderLog& log)
      GPUPOOL_EXCLUDES(mu_);

  // growth.cc
  /// A small block as a run of its own, where no chunk is to be had.
  BlockRef take_as_run(const Shape& shape, const StreamState* stream) GPUPOOL_REQUIRES(mu_);
  Result<void*> allocate_with_driver(const AllocationRequest& request, const Shape& shape,
                                     StreamState* stream, ThreadRecord* record, LadderLog& log)
      GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);
  internal::GrowthOutcome allocate_by_growth(const AllocationRequest& request, const Shape& shape,
                                             StreamState* stream, ThreadRecord* record,
                                             LadderLog& log) GPUPOOL_EXCLUDES(mu_)
      GPUPOOL_REQUIRES(growth_mu_);
  Result<void*> allocate_fallback(const AllocationRequest& request, StreamState* stream,
                                  ThreadRecord* record, FallbackReason reason, LadderLog& log)
      GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);
  /// Keeps to what the device has. False: `supply` needs more, and it is to be planned again.
  bool suits_device(const PageSupply& supply, GrowthRound& round) GPUPOOL_EXCLUDES(mu_)
      GPUPOOL_REQUIRES(growth_mu_);
  /// The driver has refused memory. False: and there is nothing else to try.
  bool learn_from_refusal(const PageSupply& supply, GrowthRound& round) GPUPOOL_EXCLUDES(mu_)
      GPUPOOL_REQUIRES(growth_mu_);
  /// Once, where the device says that it has what the driver has refused.
  bool may_try_again(const PageSupply& missing, GrowthRound& round) GPUPOOL_EXCLUDES(mu_)
      GPUPOOL_REQUIRES(growth_mu_);
  /// Of a request that growing has served, and of one that nothing has.
  MissReason reason_of_miss(const Shape& shape) const GPUPOOL_REQUIRES(mu_);
  MissReason reason_of_refusal(const Shape& shape) const GPUPOOL_REQUIRES(mu_);
  void note_held() GPUPOOL_REQUIRES(mu_);
  /// With no growth under way, which the device would count and the books not yet.
  bool refresh_device_memory() GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);

  // recycling.cc
  /// Whether empty pages are given back or moved for a request.
  bool exchanges_pages() const GPUPOOL_REQUIRES(mu_);
  bool tracks_pages() const GPUPOOL_REQUIRES(mu_);
  /// The most that the arena may hold.
  std::uint64_t arena_limit_pages() const GPUPOOL_REQUIRES(mu_);
  /// Whether the pool could grow for a request, as far as is known without the driver.
  bool can_grow(const Shape& shape, StreamIndex stream) const GPUPOOL_REQUIRES(mu_);
  /// With the least work for the driver; and with the most pages left over that could move.
  std::optional<internal::GrowthPlan> plan_for(const Shape& shape, StreamIndex stream,
                                               bool may_extend) const GPUPOOL_REQUIRES(mu_);
  std::optional<internal::GrowthPlan> plan_sparing(const Shape& shape, StreamIndex stream) const
      GPUPOOL_REQUIRES(mu_);
  /// How many pages are to go back, so that as many serve the request; nothing: too few are idle.
  std::optional<std::uint64_t> pages_to_exchange(const Shape& shape, StreamIndex stream,
                                                 std::uint64_t headroom) const
      GPUPOOL_REQUIRES(mu_);
  /// Nothing is set aside where pages are missing: by any plan, and by this one.
  PageSupply find_pages(const internal::GrowthPlan& plan, const Shape& shape,
                        const GrowthRound& round, StreamIndex stream) GPUPOOL_REQUIRES(mu_);
  PageSupply prepare_pages(const internal::GrowthPlan& plan, const GrowthRound& round,
                           StreamIndex stream) GPUPOOL_REQUIRES(mu_);
  /// Where the driver refuses, what was set aside is free again.
  Result<void> back_pages(PageSupply& supply) GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);
  void add_pages(const PageSupply& supply) GPUPOOL_REQUIRES(mu_);
  void call_off(const PageSupply& supply) GPUPOOL_REQUIRES(mu_);
  /// The oldest addresses that moved pages have left, if out of use; returns how many pages.
  std::uint64_t unmap_stale(std::uint64_t budget_ns = ~std::uint64_t{0},
                            std::uint64_t most_pages = ~std::uint64_t{0}) GPUPOOL_EXCLUDES(mu_);
  std::uint64_t unmap(const std::vector<internal::Stale>& stale) GPUPOOL_EXCLUDES(mu_);
  /// In virtual time, what it does under the growth lock is not over yet.
  void wait_for_maintenance() GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);
  /// Moves pages to where the next request is likely to need them, until `end_ns`.
  void back_ahead(std::uint64_t end_ns) GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);
  PageSupply prepare_ahead() GPUPOOL_REQUIRES(mu_);
  /// What was mapped ahead becomes free, once it is; `must`: that is waited for. False: not yet.
  bool commit_ahead(bool must) GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);
  /// More unbacked pages; false where there are no more.
  bool open_addresses() GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);

  // making_room.cc
  /// The next rung. False: there is none, or it has given nothing.
  bool climb(const Shape& shape, StreamIndex stream, const PageSupply& missing, GrowthRound& round)
      GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);
  /// For so much outside the arena.
  bool make_room(std::uint64_t bytes, LadderLog& log) GPUPOOL_EXCLUDES(mu_)
      GPUPOOL_REQUIRES(growth_mu_);
  void find_empty(LadderLog& log) GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);
  /// Gives empty pages back until `bytes` more are at most `bound`, but `reserve` bytes of them;
  /// false where there are too few.
  bool exchange(std::uint64_t bytes, std::uint64_t bound, std::uint64_t reserve, TrimReason reason,
                LadderLog& log) GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);
  /// What the reserve lacks, as far as the device, but for `keep` bytes, and the limit have it.
  std::uint64_t missing_reserve_pages(std::uint64_t keep) const GPUPOOL_REQUIRES(mu_);
  void refill_reserve(std::uint64_t end_ns, std::uint64_t keep) GPUPOOL_EXCLUDES(mu_)
      GPUPOOL_REQUIRES(growth_mu_);

  // completion.cc
  /// For another thread that looks at events; briefly is no longer than growing would take.
  enum class Patience : std::uint8_t { none, brief, full };
  /// Returns how many epochs newly are complete; nothing where others were at it for too long.
  std::optional<std::uint64_t> complete_work(Patience patience) GPUPOOL_EXCLUDES(events_mu_, mu_);
  /// The same for a thread that holds mu_: lets go of it for the driver calls.
  std::optional<std::uint64_t> pause_to_complete_work(Patience patience, LadderLog* log = nullptr)
      GPUPOOL_EXCLUDES(events_mu_) GPUPOOL_REQUIRES(mu_);
  std::uint64_t look_for_completed() GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(events_mu_);
  /// Closes the stream's open epoch. False where something is left that no event covers.
  bool close_epoch(StreamIndex stream) GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(events_mu_);
  bool record(internal::EpochEnd end) GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(events_mu_);
  /// Unless another thread looks at events: the epoch then ends when somebody looks next.
  void close_epoch_if_free(StreamIndex stream) GPUPOOL_EXCLUDES(events_mu_, mu_);
  void wait_for_all_work() GPUPOOL_EXCLUDES(events_mu_, mu_);

  // deallocate.cc
  bool deallocate_cold(void* pointer, std::size_t bytes, StreamState* stream,
                       bool is_by_handle = false);
  Target find_target(const void* pointer, bool or_inside = false) GPUPOOL_REQUIRES(mu_);
  internal::BlockRecord& record_of(const Target& target) GPUPOOL_REQUIRES(mu_);
  std::optional<MisuseReport> take_back(void* pointer, std::size_t bytes, const StreamState* stream,
                                        ThreadRecord* record, const internal::Placement& placement)
      GPUPOOL_REQUIRES(mu_);
  MisuseReport explain(const void* pointer) GPUPOOL_REQUIRES(mu_);
  void put_shared(BlockRef block, StreamIndex stream) GPUPOOL_REQUIRES(mu_);
  TicketSet tickets_of(StreamIndex stream) GPUPOOL_REQUIRES(mu_) {  // of what is freed on it now
    return TicketSet(streams_.ticket(stream));
  }
  /// Of one with extra uses, `own` being those of the stream that frees; nullptr: it has ended.
  TicketSet tickets_at_free(const void* pointer, const StreamState* stream, const TicketSet& own,
                            const internal::Placement& placement, internal::PrivatePools::Kind kind,
                            std::uint64_t bytes) GPUPOOL_REQUIRES(mu_);
  MisuseReport count_misuse(MisuseReport report) GPUPOOL_REQUIRES(mu_);
  void report_misuse(const MisuseReport& report) GPUPOOL_EXCLUDES(mu_);
  StreamState* find_or_adopt(RawStream raw, CaptureState* capture) GPUPOOL_EXCLUDES(mu_);
  StreamState* find_or_adopt_locked(RawStream raw, std::uint64_t id, ThreadRecord* record)
      GPUPOOL_REQUIRES(mu_);

  // abandoned.cc
  void hold_blocks_of(const StreamState& stream) GPUPOOL_REQUIRES(mu_);
  StreamState* find_own_stream(const void* pointer, RawStream raw) GPUPOOL_EXCLUDES(mu_);

  // upkeep.cc
  /// Ends a stream that is about to be destroyed, or was; what it left behind stays safe. Gives
  /// what is to be recorded for it while it exists.
  std::optional<internal::EpochEnd> let_go(StreamState* stream, const ThreadRecord* record)
      GPUPOOL_REQUIRES(mu_);
  /// The bytes of freed fallbacks that went back to the driver.
  std::uint64_t free_complete_fallbacks() GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);

  // trimming.cc
  std::uint64_t retry_stuck() GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);
  std::uint64_t trim_idle(std::uint64_t end_ns) GPUPOOL_EXCLUDES(mu_) GPUPOOL_REQUIRES(growth_mu_);
  /// For whoever else is on the device, as far as TrimOptions and the limit say: what is missing
  /// there, and as much of it as there is, until `end_ns`.
  std::uint64_t missing_for_others() const GPUPOOL_REQUIRES(mu_);
  std::uint64_t trim_for_others(std::uint64_t end_ns) GPUPOOL_EXCLUDES(mu_)
      GPUPOOL_REQUIRES(growth_mu_);
  std::uint64_t give_back_pages(std::vector<RunId> leaving, TrimReason reason) GPUPOOL_EXCLUDES(mu_)
      GPUPOOL_REQUIRES(growth_mu_);
  /// What the arena holds beyond the reserve, and how many pages are due for being idle.
  std::uint64_t spare_pages() const GPUPOOL_REQUIRES(mu_);
  std::uint64_t idle_pages_due() GPUPOOL_REQUIRES(mu_);
  /// Runs that are leaving: what is due and `lets_go`, or what is empty until so much is held.
  template <class LetsGo>
  std::vector<RunId> detach_some(std::uint64_t due, LetsGo lets_go) GPUPOOL_REQUIRES(mu_);
  std::vector<RunId> detach_empty(std::uint64_t target_held_bytes, std::uint64_t reserve,
                                  bool may_refill) GPUPOOL_REQUIRES(mu_);
  void attach(const std::vector<RunId>& leaving) GPUPOOL_REQUIRES(mu_);  // they stay
  void count_trim(std::uint64_t trimmed, TrimReason reason) GPUPOOL_REQUIRES(mu_);
  std::uint64_t give_back(const std::vector<RunId>& leaving) GPUPOOL_EXCLUDES(mu_)
      GPUPOOL_REQUIRES(growth_mu_);
  void shut_down();

  // recording.cc: see Note [What is recorded]
  std::uint32_t trace_stream(StreamIndex stream) const GPUPOOL_REQUIRES(mu_);
  std::vector<internal::RecordEvent> live_events() GPUPOOL_REQUIRES(mu_);

  // guarding.cc: of a block that is to be handed out; of one given back, without the lock meanwhile
  Result<void> guard(BlockRef block, std::uint64_t requested_bytes, internal::BlockWord word,
                     const StreamState& stream) GPUPOOL_REQUIRES(mu_);
  Result<void> guard_own(const internal::Fallback& own, std::uint64_t requested_bytes,
                         const StreamState& stream) GPUPOOL_EXCLUDES(mu_);
  std::optional<MisuseReport> guard_free(const Target& target, internal::BlockWord word,
                                         RawStream raw) GPUPOOL_REQUIRES(mu_);
  internal::GuardedBlock guarded(const Target& target) GPUPOOL_REQUIRES(mu_);

  // pool.cc, capacity.cc
  static Result<void, Status> find_fault(const PoolOptions& options);
  Result<std::uint64_t, Status> limit_from(const CapacityLimit& capacity, std::uint64_t held) const;

  // report.cc
  /// What would_fit() says for a stream, kAnybody for one that is not known.
  Fit find_fit(std::size_t bytes, const Shape& shape, StreamIndex index) const
      GPUPOOL_REQUIRES(mu_);
  /// A run once all pending work is complete.
  bool fits_once_complete(std::uint32_t units, StreamIndex stream) const GPUPOOL_REQUIRES(mu_);
  std::uint64_t held_bytes() const GPUPOOL_REQUIRES(mu_);
  std::uint64_t limit_in_force() const GPUPOOL_REQUIRES(mu_);
  std::uint64_t bytes_over_limit() const GPUPOOL_REQUIRES(mu_);
  std::uint64_t pending_bytes() const GPUPOOL_REQUIRES(mu_);
  std::uint64_t free_bytes() const GPUPOOL_REQUIRES(mu_);
  internal::PrivatePools::Bytes private_bytes() const GPUPOOL_REQUIRES(mu_);
  std::uint64_t movable_pages() const GPUPOOL_REQUIRES(mu_);
  std::uint64_t largest_satisfiable(bool exchanges) const GPUPOOL_REQUIRES(mu_);
  void fill_counts(StatsV1& stats, const internal::CounterTotals&) const GPUPOOL_REQUIRES(mu_);
  void fill_bytes(StatsV1& stats, const internal::CounterTotals&) const GPUPOOL_REQUIRES(mu_);
  void emit(SlowPathEvent event) const;
  static Tag tag_of(internal::BlockWord word) noexcept;
  BlockInfo info_of(BlockRef block) const GPUPOOL_REQUIRES(mu_);
  void visit_all(const BlockVisitor& visitor) const GPUPOOL_REQUIRES(mu_);
  std::uint64_t visit_arena(std::uint64_t, int, const BlockVisitor&) const GPUPOOL_REQUIRES(mu_);
  void visit_fallbacks(const BlockVisitor& visitor) const GPUPOOL_REQUIRES(mu_);
  void visit_chunk(internal::ChunkId id, const BlockVisitor& visitor) const GPUPOOL_REQUIRES(mu_);
  std::uint32_t tick_at(std::uint64_t now_ns) const GPUPOOL_REQUIRES(mu_);
  /// Ages are counted from now on, so that the same requests again find caches that age the same.
  void restart_aging() GPUPOOL_REQUIRES(mu_);
};

}  // namespace gpupool

#endif  // GPUPOOL_POOL_POOL_IMPL_H_
