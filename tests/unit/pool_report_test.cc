// What a pool tells: the map of its blocks, events, numbers.
#include <map>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolReportTest : public PoolFixture {};

class EventList final : public SlowPathObserver {
 public:
  void on_event(const SlowPathEvent& event) noexcept override { events.push_back(event); }
  std::uint64_t count(SlowPathEventKind kind) const {
    std::uint64_t count = 0;
    for (const SlowPathEvent& event : events) count += event.kind == kind ? 1 : 0;
    return count;
  }
  const SlowPathEvent& last(SlowPathEventKind kind) const {
    for (std::size_t i = events.size(); i-- > 0;) {
      if (events[i].kind == kind) return events[i];
    }
    static const SlowPathEvent none;
    return none;
  }
  std::vector<SlowPathEvent> events;
};

TEST_F(PoolReportTest, TheMapShowsEveryByteOnce) {
  void* slot = allocate(700);
  void* buddy = allocate(40 * kKiB);
  void* run = allocate(3 * kMiB);
  void* cached = allocate(kMiB);
  void* busy = allocate(2 * kMiB, b_);
  AllocationRequest request;
  request.bytes = 999;
  request.allocation_class = AllocationClass::contiguous;
  request.tag = pool_->find_tag("communication").value();
  void* fallback = pool_->allocate(request, a_).value();
  EXPECT_TRUE(work(raw_b_, busy));
  free(busy, b_);
  settle();
  free(cached);

  std::uint64_t bytes = 0;
  std::map<void*, BlockInfo> by_address;
  std::map<BlockState, std::uint64_t> by_state;
  bool is_fallback_last = false;
  pool_->visit_blocks([&](const BlockInfo& info) {
    bytes += info.bytes;
    by_state[info.state] += info.bytes;
    by_address[reinterpret_cast<void*>(info.address)] = info;
    is_fallback_last = info.is_fallback;
  });
  const StatsV1 stats = pool_->stats();
  // A slab of 1 KiB slots has no tail.
  EXPECT_EQ(bytes, stats.held_bytes);
  EXPECT_EQ(by_state[BlockState::cached], kMiB);
  EXPECT_EQ(by_state[BlockState::pending], 2 * kMiB);
  EXPECT_EQ(by_state[BlockState::free], stats.free_bytes);
  EXPECT_TRUE(is_fallback_last);

  const std::uint64_t id_a = device_.stream_id(raw_a_).value();
  EXPECT_EQ(by_address[slot].tier, Tier::size_class);
  EXPECT_EQ(by_address[slot].bytes, 1024u);
  EXPECT_EQ(by_address[slot].requested_bytes, 700u);
  EXPECT_EQ(by_address[slot].stream_id, id_a);
  EXPECT_EQ(by_address[slot].state, BlockState::live);
  EXPECT_EQ(by_address[buddy].tier, Tier::buddy);
  EXPECT_EQ(by_address[run].tier, Tier::run);
  EXPECT_EQ(by_address[cached].state, BlockState::cached);
  EXPECT_EQ(by_address[cached].requested_bytes, 0u);
  EXPECT_EQ(by_address[busy].state, BlockState::pending);
  EXPECT_EQ(by_address[busy].stream_id, device_.stream_id(raw_b_).value());
  EXPECT_TRUE(by_address[fallback].is_fallback);
  EXPECT_EQ(by_address[fallback].tag, request.tag);
  for (void* block : {slot, buddy, run, fallback}) free(block);
}

TEST_F(PoolReportTest, EventsOfTheSlowPath) {
  EventList list;
  PoolOptions options;
  options.capacity = 16 * kMiB;
  options.observer = &list;
  make_pool(options);
  device_.advance_ns(1000);

  void* block = allocate(3 * kMiB);
  EXPECT_EQ(list.last(SlowPathEventKind::growth).bytes, 4 * kMiB);
  EXPECT_EQ(list.last(SlowPathEventKind::miss).miss_reason, MissReason::cold);
  EXPECT_EQ(list.last(SlowPathEventKind::miss).bytes, 3 * kMiB);
  EXPECT_EQ(list.count(SlowPathEventKind::driver_call), pool_->stats().driver_calls);
  EXPECT_GT(list.last(SlowPathEventKind::driver_call).duration_ns, 0u);
  EXPECT_GE(list.last(SlowPathEventKind::driver_call).time_ns, 1000u);

  const std::size_t before_hits = list.events.size();
  free(block);
  EXPECT_EQ(allocate(3 * kMiB), block);
  EXPECT_EQ(list.events.size(), before_hits);  // hits are not seen

  EXPECT_FALSE(pool_->allocate(15 * kMiB, a_).ok());
  const SlowPathEvent failure = list.last(SlowPathEventKind::failure);
  EXPECT_TRUE(failure.failed);
  EXPECT_EQ(failure.error, Error::out_of_memory);
  EXPECT_EQ(failure.bytes, 15 * kMiB);

  EXPECT_FALSE(pool_->deallocate(this, a_));
  EXPECT_EQ(list.last(SlowPathEventKind::misuse).misuse, Misuse::foreign_pointer);
  free(block);
  pool_->drain_caches();
  EXPECT_EQ(list.last(SlowPathEventKind::cache_drain).bytes, 3 * kMiB);
  EXPECT_EQ(list.count(SlowPathEventKind::epoch_closed), 1u);
  pool_->trim(0);
  EXPECT_EQ(list.last(SlowPathEventKind::trim).bytes, 4 * kMiB);
  EXPECT_TRUE(pool_->reconfigure(pool_->runtime_options()).ok());
  EXPECT_EQ(list.count(SlowPathEventKind::reconfigured), 1u);
  AllocationRequest request;
  request.bytes = kMiB;
  request.allocation_class = AllocationClass::contiguous;
  free(pool_->allocate(request, a_).value());
  EXPECT_EQ(list.last(SlowPathEventKind::fallback).fallback_reason, FallbackReason::contiguous);

  backend_.fail_nth(BackendCall::create, 1, Error::backend_failure);
  free(allocate(kMiB));
  bool has_failed_create = false;
  for (const SlowPathEvent& event : list.events) {
    has_failed_create |= event.kind == SlowPathEventKind::driver_call && event.failed &&
                         event.operation == DriverOperation::create &&
                         event.error == Error::backend_failure;
  }
  EXPECT_TRUE(has_failed_create);
  EXPECT_EQ(pool_->stats().driver_failures, 1u);
  end_pool();  // before its observer
}

TEST_F(PoolReportTest, DriverCallsAreCountedAndTimedByKind) {
  make_pool_without_recycling(1024 * kMiB);
  free(allocate(50 * kMiB));
  pool_->trim(0);
  const StatsV1 stats = pool_->stats();
  std::uint64_t calls = 0;
  std::uint64_t timed = 0;
  std::uint64_t sum_ns = 0;
  for (std::size_t i = 0; i < kDriverOperationCount; ++i) {
    calls += stats.driver_calls_by_operation[i];
    const auto& histogram = stats.driver_duration[i];
    EXPECT_EQ(std::accumulate(histogram.count.begin(), histogram.count.end(), std::uint64_t{0}),
              stats.driver_calls_by_operation[i]);
    timed += histogram.sum_ns;
    sum_ns += histogram.sum_ns;
  }
  EXPECT_EQ(calls, stats.driver_calls);
  EXPECT_EQ(timed, stats.driver_ns);
  EXPECT_GT(sum_ns, 0u);
  const auto calls_of = [&](DriverOperation operation) {
    return stats.driver_calls_by_operation[static_cast<std::size_t>(operation)];
  };
  // 25 pages: one handle of 16, one of 8, one of 1.
  EXPECT_EQ(calls_of(DriverOperation::create), 3u);
  EXPECT_EQ(calls_of(DriverOperation::map), 3u);
  EXPECT_EQ(calls_of(DriverOperation::set_access), 1u);
  EXPECT_EQ(calls_of(DriverOperation::unmap), 3u);
  EXPECT_EQ(calls_of(DriverOperation::release), 3u);
  EXPECT_EQ(stats.pages_mapped, 25u);
  EXPECT_EQ(stats.pages_unmapped, 25u);
  EXPECT_LE(stats.driver_wait_ns, stats.driver_ns);
  EXPECT_GT(stats.driver_wait_ns, 0u);
}

TEST_F(PoolReportTest, RequestsBySize) {
  free(allocate(512));
  free(allocate(513));
  free(allocate(2048));
  free(allocate(20 * kMiB));
  EXPECT_FALSE(pool_->allocate(std::size_t{1} << 63, a_).ok());
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.requests_by_size[0], 1u);
  EXPECT_EQ(stats.requests_by_size[1], 2u);
  EXPECT_EQ(stats.requests_by_size[8], 1u);  // up to 32 MiB
  EXPECT_EQ(stats.requests_by_size[kSizeBuckets - 1], 1u);
  EXPECT_EQ(stats.requested_bytes_total, 512 + 513 + 2048 + 20 * kMiB);
}

TEST_F(PoolReportTest, ObjectsAreCounted) {
  void* slot = allocate(600);
  void* run = allocate(kMiB);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.live_blocks, 2u);
  EXPECT_EQ(stats.chunks, 1u);
  EXPECT_EQ(stats.slabs, 1u);
  EXPECT_EQ(stats.runs, 3u);  // the chunk, the block, the rest of the page
  EXPECT_EQ(stats.segments, 1u);
  EXPECT_EQ(stats.streams, 2u);
  EXPECT_EQ(stats.size, sizeof(StatsV1));
  EXPECT_EQ(stats.version, 1u);
  EXPECT_GT(stats.metadata_bytes, 0u);
  EXPECT_GT(stats.start_unix_ns, std::uint64_t{1'600'000'000} * 1'000'000'000);
  // 64 KiB of buddy room beside the slab.
  EXPECT_EQ(stats.free_buddies_by_log2[16], 1u);
  free(slot);
  free(run);
  settle();
  EXPECT_EQ(pool_->stats().chunks, 0u);
  EXPECT_EQ(pool_->stats().slabs, 0u);
  EXPECT_EQ(pool_->stats().runs, 1u);
}

TEST_F(PoolReportTest, WasteIsRoundingAndSlabTails) {
  void* slot = allocate(600);  // of 1 KiB
  EXPECT_EQ(pool_->stats().waste_bytes, 424u);
  void* odd = allocate(2500);  // of 2560 B: 25 in 64 KiB leave 1536 B, 51 in 128 KiB leave 512 B
  EXPECT_EQ(pool_->stats().waste_bytes, 424u + 60u + 512u);
  void* run = allocate(kMiB + 1);
  EXPECT_EQ(pool_->stats().waste_bytes, 424u + 60u + 512u + 4095u);
  for (void* block : {slot, odd, run}) free(block);
  settle();
  EXPECT_EQ(pool_->stats().waste_bytes, 0u);
}

TEST_F(PoolReportTest, ASnapshotMakesNoDriverCall) {
  free(allocate(kMiB));
  const std::uint64_t calls = backend_.call_count();
  for (int i = 0; i < 10; ++i) {
    (void)pool_->stats();
    (void)pool_->would_fit(kMiB, a_);
    pool_->visit_blocks([](const BlockInfo&) {});
    (void)pool_->last_failure();
  }
  EXPECT_EQ(backend_.call_count(), calls);
}

TEST_F(PoolReportTest, CountersOnlyRise) {
  StatsV1 last = pool_->stats();
  for (int i = 0; i < 200; ++i) {
    if (i % 7 == 0) pool_->trim(0);
    if (i % 5 == 0) pool_->maintain();
    if (i % 11 == 0) pool_->drain_caches();
    free(allocate((static_cast<std::uint64_t>(i) * 7919 % 5000 + 1) * kKiB));
    const StatsV1 now = pool_->stats();
    EXPECT_GE(now.driver_calls, last.driver_calls);
    EXPECT_GE(now.splits, last.splits);
    EXPECT_GE(now.merges, last.merges);
    EXPECT_GE(now.pages_mapped, last.pages_mapped);
    EXPECT_GE(now.pages_unmapped, last.pages_unmapped);
    EXPECT_GE(now.epochs_closed, last.epochs_closed);
    EXPECT_GE(now.retries, last.retries);
    EXPECT_EQ(now.requests, last.requests + 1);
    last = now;
  }
}

TEST_F(PoolReportTest, BlocksNameTheHandleOfTheirStream) {
  const auto number = [](RawStream raw) { return reinterpret_cast<std::uintptr_t>(raw); };
  AllocationRequest request;
  request.bytes = 3 * kMiB;
  request.allocation_class = AllocationClass::contiguous;
  void* const fallback = pool_->allocate(request, b_).value();
  std::vector<void*> blocks = {allocate(512), allocate(40 * kKiB), allocate(kMiB)};
  void* const pending = allocate(5 * kMiB, b_);
  EXPECT_TRUE(work(raw_b_, pending));
  free(pending, b_);
  pool_->drain_caches();
  std::size_t live = 0;
  std::size_t of_b = 0;
  pool_->visit_blocks([&](const BlockInfo& info) {
    if (info.stream_id == 0) {
      EXPECT_FALSE(info.stream_handle.has_value());
      return;
    }
    const bool is_b = info.stream_id == device_.stream_id(raw_b_).value();
    EXPECT_EQ(info.stream_handle, number(is_b ? raw_b_ : raw_a_));
    if (info.state == BlockState::live) ++live;
    if (is_b) ++of_b;
  });
  EXPECT_EQ(live, 4u);
  EXPECT_GE(of_b, 2u);
  for (void* block : blocks) free(block);
  free(fallback, b_);
}

}  // namespace
}  // namespace gpupool
