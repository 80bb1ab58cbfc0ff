#include "tests/contract/backend_contract.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

namespace gpupool::contract {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendContract);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendDataContract);

// Memory.

TEST_P(BackendContract, SaysWhatItIs) {
  const DeviceInfo& info = backend_->info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.driver.empty());
  EXPECT_EQ(info.uuid.substr(0, 4), info.simulated ? "SIM-" : "GPU-");
  EXPECT_EQ(info.uuid.size(), 40u);
  EXPECT_TRUE(info.supports_vmm);
  EXPECT_EQ(page_ & (page_ - 1), 0u);
  EXPECT_GE(page_, 4096u);
  const MemoryInfo memory = backend_->memory_info().value();
  EXPECT_GT(memory.free_bytes, 64 * page_);
  EXPECT_LE(memory.free_bytes, memory.total_bytes);
  const std::uint64_t before = backend_->clock().now_ns();
  EXPECT_GE(backend_->clock().now_ns(), before);
}

TEST_P(BackendContract, HeldBytesFollowEachStepOfALife) {
  const DeviceAddress range = reserve(8);
  EXPECT_EQ(range % page_, 0u);
  EXPECT_EQ(backend_->held_bytes(), 0u);
  const PhysicalHandle one = backend_->create(page_).value();
  EXPECT_EQ(backend_->held_bytes(), page_);
  const PhysicalHandle three = backend_->create(3 * page_).value();
  EXPECT_EQ(backend_->held_bytes(), 4 * page_);
  ASSERT_TRUE(backend_->map(range, page_, one));
  ASSERT_TRUE(backend_->map(range + page_, 3 * page_, three));
  ASSERT_TRUE(backend_->set_access(range, 4 * page_));
  EXPECT_EQ(backend_->held_bytes(), 4 * page_);
  const DeviceAddress plain = backend_->allocate(3 * page_).value();
  EXPECT_EQ(backend_->held_bytes(), 7 * page_);
  ASSERT_TRUE(backend_->unmap(range, page_));
  EXPECT_EQ(backend_->held_bytes(), 7 * page_);
  ASSERT_TRUE(backend_->release(one));
  EXPECT_EQ(backend_->held_bytes(), 6 * page_);
  ASSERT_TRUE(backend_->release(three));  // still mapped
  EXPECT_EQ(backend_->held_bytes(), 6 * page_);
  ASSERT_TRUE(backend_->deallocate(plain));
  EXPECT_EQ(backend_->held_bytes(), 3 * page_);
  ASSERT_TRUE(backend_->unmap(range + page_, 3 * page_));
  EXPECT_EQ(backend_->held_bytes(), 0u);
  ASSERT_TRUE(backend_->free_address(range, 8 * page_));
}

TEST_P(BackendContract, TheDeviceCountsAsWeDo) {
  const std::uint64_t bytes = 32 * page_;
  const std::uint64_t free_before = backend_->memory_info().value().free_bytes;
  const PhysicalHandle handle = backend_->create(bytes).value();
  const std::uint64_t free_with = backend_->memory_info().value().free_bytes;
  // On a shared card others may take and give meanwhile, but hardly as much as this.
  EXPECT_LE(free_with, free_before - bytes / 2);
  ASSERT_TRUE(backend_->release(handle));
  EXPECT_GE(backend_->memory_info().value().free_bytes, free_with + bytes / 2);
}

TEST_P(BackendContract, AHandleMayBeMappedTwiceAndCountsOnce) {
  const DeviceAddress range = reserve(4);
  const PhysicalHandle handle = backend_->create(page_).value();
  ASSERT_TRUE(backend_->map(range, page_, handle));
  ASSERT_TRUE(backend_->map(range + 2 * page_, page_, handle));
  EXPECT_EQ(backend_->held_bytes(), page_);
  ASSERT_TRUE(backend_->release(handle));
  ASSERT_TRUE(backend_->unmap(range, page_));
  EXPECT_EQ(backend_->held_bytes(), page_);
  ASSERT_TRUE(backend_->unmap(range + 2 * page_, page_));
  EXPECT_EQ(backend_->held_bytes(), 0u);
  ASSERT_TRUE(backend_->free_address(range, 4 * page_));
}

TEST_P(BackendContract, OneCallMaySpanSeveralMappings) {
  const DeviceAddress range = reserve(6);
  for (std::uint64_t i = 0; i < 6; ++i) {
    const PhysicalHandle handle = backend_->create(page_).value();
    ASSERT_TRUE(backend_->map(range + i * page_, page_, handle));
    ASSERT_TRUE(backend_->release(handle));
  }
  ASSERT_TRUE(backend_->set_access(range, 6 * page_));
  ASSERT_TRUE(backend_->unmap(range + page_, 4 * page_));
  EXPECT_EQ(backend_->held_bytes(), 2 * page_);
  ASSERT_TRUE(backend_->unmap(range, page_));
  ASSERT_TRUE(backend_->unmap(range + 5 * page_, page_));
  ASSERT_TRUE(backend_->free_address(range, 6 * page_));
}

TEST_P(BackendContract, RangesAreAlignedAndDisjoint) {
  const std::uint64_t alignment = std::uint64_t{1} << 30;
  const DeviceAddress first = backend_->reserve_address(3 * page_, alignment).value();
  const DeviceAddress second = backend_->reserve_address(5 * page_, alignment).value();
  EXPECT_NE(first, 0u);
  EXPECT_EQ(first % alignment, 0u);
  EXPECT_EQ(second % alignment, 0u);
  EXPECT_NE(first, second);
  const DeviceAddress third = reserve(7);
  EXPECT_TRUE(third + 7 * page_ <= first || first + 3 * page_ <= third);
  ASSERT_TRUE(backend_->free_address(first, 3 * page_));
  ASSERT_TRUE(backend_->free_address(second, 5 * page_));
  ASSERT_TRUE(backend_->free_address(third, 7 * page_));
}

TEST_P(BackendContract, PlainAllocationsAreDistinctAndAligned) {
  std::vector<DeviceAddress> all;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{512}, std::size_t{100000}, page_}) {
    const auto address = backend_->allocate(bytes);
    ASSERT_TRUE(address);
    EXPECT_EQ(address.value() % 256, 0u);
    all.push_back(address.value());
  }
  EXPECT_EQ(std::set<DeviceAddress>(all.begin(), all.end()).size(), all.size());
  EXPECT_GE(backend_->held_bytes(), 1 + 512 + 100000 + page_);
  for (const DeviceAddress address : all) ASSERT_TRUE(backend_->deallocate(address));
}

// Each call below is wrong; after it everything is as before.
TEST_P(BackendContract, FailedCallsChangeNothing) {
  const DeviceAddress range = reserve(8);
  const PhysicalHandle handle = backend_->create(2 * page_).value();
  const PhysicalHandle other = backend_->create(page_).value();
  ASSERT_TRUE(backend_->map(range, 2 * page_, handle));
  const auto is_as_before = [&] { return backend_->held_bytes() == 3 * page_; };

  EXPECT_FALSE(backend_->reserve_address(0, page_));
  EXPECT_FALSE(backend_->reserve_address(page_ / 2, page_));
  EXPECT_FALSE(backend_->reserve_address(page_, 3));
  EXPECT_FALSE(backend_->create(0));
  EXPECT_FALSE(backend_->create(page_ + 1));
  EXPECT_FALSE(backend_->allocate(0));
  EXPECT_TRUE(is_as_before());
  EXPECT_FALSE(backend_->map(range, page_, other));                  // something is there
  EXPECT_FALSE(backend_->map(range + page_, page_, other));          // and here
  EXPECT_FALSE(backend_->map(range + 4 * page_, page_, handle));     // not the whole handle
  EXPECT_FALSE(backend_->map(range + 4 * page_, 2 * page_, other));  // more than the handle
  EXPECT_FALSE(backend_->map(range + 4 * page_, page_, PhysicalHandle{}));
  EXPECT_FALSE(backend_->unmap(range, page_));              // half a mapping
  EXPECT_FALSE(backend_->unmap(range, 3 * page_));          // beyond it
  EXPECT_FALSE(backend_->unmap(range + 4 * page_, page_));  // nothing there
  EXPECT_FALSE(backend_->set_access(range + 4 * page_, page_));
  EXPECT_FALSE(backend_->set_access(range, 4 * page_));
  EXPECT_TRUE(is_as_before());
  EXPECT_FALSE(backend_->free_address(range, 8 * page_));  // a mapping is left
  EXPECT_FALSE(backend_->release(PhysicalHandle{}));
  EXPECT_FALSE(backend_->deallocate(range));  // no plain allocation
  EXPECT_FALSE(backend_->query_event(EventHandle{}));
  EXPECT_FALSE(backend_->destroy_event(EventHandle{}));
  EXPECT_TRUE(is_as_before());

  // What was there still works.
  EXPECT_TRUE(backend_->set_access(range, 2 * page_));
  EXPECT_TRUE(backend_->map(range + 2 * page_, page_, other));
  EXPECT_TRUE(backend_->unmap(range, 3 * page_));
  EXPECT_TRUE(backend_->release(handle));
  EXPECT_FALSE(backend_->release(handle));
  EXPECT_TRUE(backend_->release(other));
  EXPECT_TRUE(backend_->free_address(range, 8 * page_));
}

TEST_P(BackendContract, MoreThanTheDeviceHasIsOutOfMemory) {
  const MemoryInfo memory = backend_->memory_info().value();
  const std::uint64_t too_much = (memory.total_bytes / page_ + 1) * page_;
  EXPECT_EQ(backend_->create(too_much).error(), Error::out_of_memory);
  EXPECT_EQ(backend_->allocate(too_much).error(), Error::out_of_memory);
  EXPECT_EQ(backend_->held_bytes(), 0u);
  // And the next call is served as if nothing had been.
  const auto handle = backend_->create(page_);
  ASSERT_TRUE(handle);
  ASSERT_TRUE(backend_->release(handle.value()));
}

// Streams and events.

TEST_P(BackendContract, EventsFollowTheirStream) {
  const RawStream stream = device_->create_stream();
  const RawStream other = device_->create_stream();
  const EventHandle event = backend_->create_event().value();
  EXPECT_TRUE(backend_->query_event(event).value());  // never recorded: nothing to wait for
  ASSERT_TRUE(backend_->record_event(event, stream));
  EXPECT_TRUE(backend_->synchronize_event(event));
  EXPECT_TRUE(backend_->query_event(event).value());
  device_->start_work(stream);
  EXPECT_TRUE(backend_->query_event(event).value());  // recorded before that work
  ASSERT_TRUE(backend_->record_event(event, stream));
  EXPECT_FALSE(backend_->query_event(event).value());
  const EventHandle of_other = backend_->create_event().value();
  ASSERT_TRUE(backend_->record_event(of_other, other));
  EXPECT_TRUE(backend_->synchronize_event(of_other));
  device_->finish_work(stream);
  EXPECT_TRUE(backend_->synchronize_event(event));
  EXPECT_TRUE(backend_->query_event(event).value());
  ASSERT_TRUE(backend_->destroy_event(event));
  ASSERT_TRUE(backend_->destroy_event(of_other));
  device_->destroy_stream(stream);
  device_->destroy_stream(other);
}

TEST_P(BackendContract, AWaitHoldsBackWhatComesAfterIt) {
  const RawStream first = device_->create_stream();
  const RawStream second = device_->create_stream();
  const EventHandle of_first = backend_->create_event().value();
  const EventHandle of_second = backend_->create_event().value();
  device_->start_work(first);
  ASSERT_TRUE(backend_->record_event(of_first, first));
  ASSERT_TRUE(backend_->wait_event(second, of_first));
  ASSERT_TRUE(backend_->record_event(of_second, second));
  EXPECT_FALSE(backend_->query_event(of_second).value());
  ASSERT_TRUE(backend_->destroy_event(of_first));  // the wait stays
  EXPECT_FALSE(backend_->query_event(of_second).value());
  device_->finish_work(first);
  EXPECT_TRUE(backend_->synchronize_event(of_second));
  EXPECT_TRUE(backend_->query_event(of_second).value());
  ASSERT_TRUE(backend_->destroy_event(of_second));
  device_->destroy_stream(first);
  device_->destroy_stream(second);
}

TEST_P(BackendContract, IdentitiesOfStreamsAreNeverGivenAgain) {
  std::set<std::uint64_t> ids;
  std::set<RawStream> handles;
  for (int i = 0; i < 50; ++i) {
    const RawStream stream = device_->create_stream();
    handles.insert(stream);
    const std::uint64_t id = backend_->stream_id(stream).value();
    EXPECT_TRUE(ids.insert(id).second);
    EXPECT_EQ(backend_->stream_id(stream).value(), id);
    device_->destroy_stream(stream);
  }
  EXPECT_LT(handles.size(), 50u);  // while handles are
}

TEST_P(BackendContract, DefaultStreamsHaveIdentities) {
  const std::uint64_t legacy = backend_->stream_id(nullptr).value();
  EXPECT_EQ(backend_->stream_id(reinterpret_cast<RawStream>(std::uintptr_t{1})).value(), legacy);
  const std::uint64_t mine = backend_->stream_id(per_thread_stream()).value();
  EXPECT_NE(mine, legacy);
  std::uint64_t others = mine;
  std::thread([&] { others = backend_->stream_id(per_thread_stream()).value(); }).join();
  EXPECT_NE(others, mine);
  EXPECT_NE(others, legacy);
}

TEST_P(BackendContract, SeesCaptures) {
  const RawStream stream = device_->create_blocking_stream();
  const RawStream other = device_->create_stream();
  EXPECT_EQ(backend_->capture_state(stream).value(), CaptureState::none);
  EXPECT_EQ(backend_->capture_state(nullptr).value(), CaptureState::none);
  device_->begin_capture(stream);
  EXPECT_EQ(backend_->capture_state(stream).value(), CaptureState::active);
  EXPECT_EQ(backend_->capture_state(nullptr).value(), CaptureState::implicit);
  EXPECT_EQ(backend_->capture_state(other).value(), CaptureState::none);
  EXPECT_EQ(backend_->capture_state(stream).value(), CaptureState::active);
  device_->end_capture(stream);
  EXPECT_EQ(backend_->capture_state(stream).value(), CaptureState::none);
  EXPECT_EQ(backend_->capture_state(nullptr).value(), CaptureState::none);
  device_->destroy_stream(stream);
  device_->destroy_stream(other);
}

TEST_P(BackendContract, EachCaptureHasANumberOfItsOwn) {
  const RawStream stream = device_->create_stream();
  EXPECT_FALSE(backend_->capture_id(stream));
  device_->begin_capture(stream);
  const auto first = backend_->capture_id(stream);
  ASSERT_TRUE(first);
  EXPECT_EQ(backend_->capture_id(stream).value(), first.value());
  device_->end_capture(stream);
  EXPECT_FALSE(backend_->capture_id(stream));
  device_->begin_capture(stream);
  const auto second = backend_->capture_id(stream);
  ASSERT_TRUE(second);
  EXPECT_NE(second.value(), first.value());
  EXPECT_EQ(backend_->capture_state(stream).value(), CaptureState::active);
  device_->end_capture(stream);
  device_->destroy_stream(stream);
}

TEST_P(BackendContract, WaitsForAllWorkOfTheDevice) {
  const RawStream stream = device_->create_stream();
  const EventHandle event = backend_->create_event().value();
  device_->start_work(stream);
  ASSERT_TRUE(backend_->record_event(event, stream));
  EXPECT_FALSE(backend_->query_event(event).value());
  device_->finish_work(stream);
  EXPECT_TRUE(backend_->synchronize_device());
  EXPECT_TRUE(backend_->query_event(event).value());
  ASSERT_TRUE(backend_->destroy_event(event));
  device_->destroy_stream(stream);
}

// Growth and maintenance go on while somebody captures, on this thread and on others.
TEST_P(BackendContract, CallsDoNotDisturbACapture) {
  const RawStream stream = device_->create_stream();
  const RawStream other = device_->create_stream();
  const EventHandle event = backend_->create_event().value();
  ASSERT_TRUE(backend_->record_event(event, other));
  device_->begin_capture(stream);
  const auto work = [&] {
    const DeviceAddress range = reserve(2);
    map_new(range, 2);
    EXPECT_TRUE(backend_->query_event(event));
    EXPECT_TRUE(backend_->memory_info());
    EXPECT_TRUE(backend_->unmap(range, 2 * page_));
    EXPECT_TRUE(backend_->free_address(range, 2 * page_));
    const auto plain = backend_->allocate(page_);
    ASSERT_TRUE(plain);
    EXPECT_TRUE(backend_->deallocate(plain.value()));
  };
  work();
  std::thread(work).join();
  EXPECT_EQ(backend_->capture_state(stream).value(), CaptureState::active);
  device_->end_capture(stream);
  ASSERT_TRUE(backend_->destroy_event(event));
  device_->destroy_stream(stream);
  device_->destroy_stream(other);
}

TEST_P(BackendContract, ServesSeveralThreadsAtOnce) {
  constexpr int kThreads = 4;
  std::atomic<int> failed{0};
  const auto expect = [&failed](bool is_right) {
    if (!is_right) failed.fetch_add(1);
  };
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const RawStream stream = device_->create_stream();
      const DeviceAddress range = reserve(8);
      const EventHandle event = backend_->create_event().value();
      for (int round = 0; round < 40; ++round) {
        for (std::uint64_t i = 0; i < 4; ++i) {
          const auto handle = backend_->create(page_);
          expect(handle && backend_->map(range + 2 * i * page_, page_, handle.value()));
          expect(backend_->set_access(range + 2 * i * page_, page_).ok());
          expect(backend_->release(handle.value()).ok());
        }
        const auto plain = backend_->allocate(1000);
        expect(plain && backend_->record_event(event, stream));
        expect(backend_->synchronize_event(event).ok() && backend_->query_event(event).value());
        expect(backend_->held_bytes() >= 4 * page_);
        for (std::uint64_t i = 0; i < 4; ++i) {
          expect(backend_->unmap(range + 2 * i * page_, page_).ok());
        }
        expect(backend_->deallocate(plain.value()).ok());
      }
      expect(backend_->destroy_event(event).ok());
      expect(backend_->free_address(range, 8 * page_).ok());
      device_->destroy_stream(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), 0);
}

// Bytes.

TEST_P(BackendDataContract, WritesAreReadBack) {
  const RawStream stream = device_->create_stream();
  const DeviceAddress range = reserve(2);
  map_new(range, 2);
  const DeviceAddress plain = backend_->allocate(5000).value();
  device_->fill(stream, range, 0x11, 2 * page_);
  device_->fill(stream, plain, 0x22, 5000);
  EXPECT_EQ(device_->read(range, 2 * page_), std::vector<std::uint8_t>(2 * page_, 0x11));
  EXPECT_EQ(device_->read(plain, 5000), std::vector<std::uint8_t>(5000, 0x22));
  ASSERT_TRUE(backend_->deallocate(plain));
  ASSERT_TRUE(backend_->unmap(range, 2 * page_));
  ASSERT_TRUE(backend_->free_address(range, 2 * page_));
  device_->destroy_stream(stream);
}

TEST_P(BackendDataContract, TwoMappingsShowTheSameBytes) {
  const RawStream stream = device_->create_stream();
  const DeviceAddress range = reserve(4);
  const DeviceAddress alias = range + 3 * page_;
  const PhysicalHandle handle = backend_->create(page_).value();
  ASSERT_TRUE(backend_->map(range, page_, handle));
  ASSERT_TRUE(backend_->set_access(range, page_));
  device_->fill(stream, range, 0x33, page_);
  ASSERT_TRUE(backend_->map(alias, page_, handle));
  ASSERT_TRUE(backend_->set_access(alias, page_));
  EXPECT_EQ(device_->read(alias, page_), std::vector<std::uint8_t>(page_, 0x33));
  device_->fill(stream, alias, 0x44, page_ / 2);
  ASSERT_TRUE(backend_->unmap(alias, page_));
  std::vector<std::uint8_t> expected(page_, 0x33);
  std::fill_n(expected.begin(), page_ / 2, 0x44);
  EXPECT_EQ(device_->read(range, page_), expected);
  ASSERT_TRUE(backend_->unmap(range, page_));
  ASSERT_TRUE(backend_->release(handle));
  ASSERT_TRUE(backend_->free_address(range, 4 * page_));
  device_->destroy_stream(stream);
}

// What recycling does: the page leaves one address and comes up, with its bytes, at another.
TEST_P(BackendDataContract, APageMovesWithItsBytes) {
  const RawStream stream = device_->create_stream();
  const DeviceAddress range = reserve(16);
  std::vector<PhysicalHandle> handles;
  for (std::uint64_t i = 0; i < 4; ++i) {
    handles.push_back(backend_->create(page_).value());
    ASSERT_TRUE(backend_->map(range + 2 * i * page_, page_, handles.back()));
    ASSERT_TRUE(backend_->set_access(range + 2 * i * page_, page_));
    device_->fill(stream, range + 2 * i * page_, static_cast<std::uint8_t>(i + 1), page_);
  }
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(backend_->unmap(range + 2 * i * page_, page_));
    ASSERT_TRUE(backend_->map(range + (8 + i) * page_, page_, handles[3 - i]));
  }
  ASSERT_TRUE(backend_->set_access(range + 8 * page_, 4 * page_));
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(device_->read(range + (8 + i) * page_, 16),
              std::vector<std::uint8_t>(16, static_cast<std::uint8_t>(4 - i)));
  }
  ASSERT_TRUE(backend_->unmap(range + 8 * page_, 4 * page_));
  for (const PhysicalHandle handle : handles) ASSERT_TRUE(backend_->release(handle));
  ASSERT_TRUE(backend_->free_address(range, 16 * page_));
  device_->destroy_stream(stream);
}

TEST_P(BackendDataContract, FailedCallsLeaveTheBytes) {
  const RawStream stream = device_->create_stream();
  const DeviceAddress range = reserve(4);
  map_new(range, 2);
  const PhysicalHandle other = backend_->create(page_).value();
  device_->fill(stream, range, 0x55, 2 * page_);
  EXPECT_FALSE(backend_->map(range + page_, page_, other));
  EXPECT_FALSE(backend_->unmap(range + page_, page_));
  EXPECT_FALSE(backend_->free_address(range, 4 * page_));
  EXPECT_EQ(device_->read(range, 2 * page_), std::vector<std::uint8_t>(2 * page_, 0x55));
  ASSERT_TRUE(backend_->release(other));
  ASSERT_TRUE(backend_->unmap(range, 2 * page_));
  ASSERT_TRUE(backend_->free_address(range, 4 * page_));
  device_->destroy_stream(stream);
}

TEST_P(BackendDataContract, ThreadsDoNotSeeEachOthersBytes) {
  constexpr std::uint8_t kThreads = 4;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (std::uint8_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const RawStream stream = device_->create_stream();
      const DeviceAddress range = reserve(2);
      for (std::uint8_t round = 0; round < 10; ++round) {
        const auto value = static_cast<std::uint8_t>(t * 16 + round);
        map_new(range, 2);
        device_->fill(stream, range, value, 2 * page_);
        std::this_thread::yield();
        const auto seen = device_->read(range, 2 * page_);
        if (seen != std::vector<std::uint8_t>(2 * page_, value)) wrong.fetch_add(1);
        if (!backend_->unmap(range, 2 * page_)) wrong.fetch_add(1);
      }
      if (!backend_->free_address(range, 2 * page_)) wrong.fetch_add(1);
      device_->destroy_stream(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace gpupool::contract
