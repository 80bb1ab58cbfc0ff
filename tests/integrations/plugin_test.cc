// The plug-in's functions, as PyTorch calls them and as it should not.
#include "tests/integrations/plugin.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "tests/support/units.h"

namespace gpupool::testing {
namespace {

// As PyTorch declares what it is given the addresses of (CUDAPluggableAllocator.h).
template <class Function, class Expected>
constexpr bool kIs = std::is_same_v<Function, Expected>;
static_assert(kIs<decltype(gpupool_torch_alloc), void*(std::size_t, int, CUstream_st*)>);
static_assert(kIs<decltype(gpupool_torch_free), void(void*, std::size_t, int, CUstream_st*)>);
static_assert(kIs<decltype(gpupool_torch_init), void(int)>);
static_assert(kIs<decltype(gpupool_torch_reset), void()>);
static_assert(kIs<decltype(gpupool_torch_memory_fraction), void(double, int)>);
static_assert(kIs<decltype(gpupool_torch_base_alloc), void*(void*, std::size_t*)>);
static_assert(kIs<decltype(gpupool_torch_record_stream), void(void*, CUstream_st*)>);
using PoolId = std::pair<unsigned long long, unsigned long long>;
static_assert(kIs<decltype(gpupool_torch_begin_allocate_to_pool),
                  void(int, PoolId, std::function<bool(CUstream_st*)>)>);
static_assert(kIs<decltype(gpupool_torch_end_allocate_to_pool), void(int, PoolId)>);
static_assert(kIs<decltype(gpupool_torch_release_pool), void(int, PoolId)>);

/// The text of what the call throws, "" where it does not; only PyTorch-safe types pass.
std::string thrown(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(typeid(error), typeid(std::runtime_error));
    return error.what();
  }
  return {};
}

class PluginTest : public ::testing::Test {
 protected:
  /// A device that no other test of this program has used.
  int fresh_device() { return next_device_++; }

  const Plugin plugin_;

 private:
  static inline int next_device_ = 0;
};

TEST_F(PluginTest, BlocksComeFromTheDevicesOwnPool) {
  const int first = fresh_device();
  const int second = fresh_device();
  void* const a = plugin_.alloc(3 * kMiB, first);
  void* const b = plugin_.alloc(5 * kMiB, second);
  EXPECT_NE(a, nullptr);
  EXPECT_EQ(plugin_.stats(first).live_requested_bytes, 3 * kMiB);
  EXPECT_EQ(plugin_.stats(second).live_requested_bytes, 5 * kMiB);
  plugin_.free(a, 3 * kMiB, first);
  plugin_.free(b, 5 * kMiB, second);
  EXPECT_EQ(plugin_.stats(first).live_blocks, 0u);
  EXPECT_EQ(plugin_.stats(second).live_blocks, 0u);
  EXPECT_EQ(plugin_.stats(second).misuses, 0u);
}

TEST_F(PluginTest, NothingIsMadeForADeviceThatNobodyAskedFor) {
  const int device = fresh_device();
  EXPECT_EQ(plugin_.pool(device, /*create=*/false), nullptr);
  EXPECT_NE(plugin_.last_error().find("no pool yet"), std::string::npos) << plugin_.last_error();
}

TEST_F(PluginTest, AFullDeviceThrowsATextThatBeginsLikePyTorchs) {
  const int device = fresh_device();
  const std::string text = thrown([&] { plugin_.alloc(kGiB << 10, device); });
  EXPECT_EQ(text.rfind("CUDA out of memory. Tried to allocate 1024.00 GiB. GPU " +
                           std::to_string(device) + " has a total capacity of 140.00 GiB",
                       0),
            0u)
      << text;
  EXPECT_NE(text.find("limit"), std::string::npos) << text;
  // Caught and survived.
  void* const block = plugin_.alloc(kMiB, device);
  EXPECT_NE(block, nullptr);
  plugin_.free(block, kMiB, device);
  EXPECT_EQ(plugin_.stats(device).failures, 1u);
}

TEST_F(PluginTest, AFullDeviceIsNullForAMemPool) {
  const int device = fresh_device();
  EXPECT_EQ(plugin_.alloc_or_null(kGiB << 10, device), nullptr);
  void* const block = plugin_.alloc_or_null(kMiB, device);
  EXPECT_NE(block, nullptr);
  plugin_.find<decltype(gpupool_torch_free_or_ignore)>("gpupool_torch_free_or_ignore")(
      block, kMiB, device, nullptr);
  EXPECT_EQ(plugin_.stats(device).live_blocks, 0u);
}

TEST_F(PluginTest, NegativeSizesAreRefusedAndCounted) {
  const int device = fresh_device();
  const auto before = plugin_.counters().refused_sizes;
  const std::string text = thrown([&] { plugin_.alloc(static_cast<std::size_t>(-512), device); });
  EXPECT_NE(text.find("as a signed number: -512"), std::string::npos) << text;
  EXPECT_EQ(plugin_.alloc_or_null(static_cast<std::size_t>(-1), device), nullptr);
  EXPECT_EQ(plugin_.counters().refused_sizes, before + 2);
  EXPECT_NE(thrown([&] { plugin_.alloc(std::size_t{1} << 62, device); }), "");
}

TEST_F(PluginTest, ZeroBytesAreNullAndValidToFree) {
  const int device = fresh_device();
  EXPECT_EQ(plugin_.alloc(0, device), nullptr);
  plugin_.free(nullptr, 0, device);
  EXPECT_EQ(plugin_.pool(device, /*create=*/false), nullptr);
}

TEST_F(PluginTest, DevicesThatDoNotExistAreRefused) {
  for (const int device : {-1, 64, 1 << 30}) {
    EXPECT_NE(thrown([&] { plugin_.alloc(kMiB, device); }).find("is none of 0 to 63"),
              std::string::npos);
  }
}

TEST_F(PluginTest, AWrongSizeAtFreeIsCountedAndIgnored) {
  const int device = fresh_device();
  void* const block = plugin_.alloc(kMiB, device);
  plugin_.free(block, 17, device);
  EXPECT_EQ(plugin_.numbers(device)["misuses.wrong_size"], 1u);
  for (const int wrong : {-1, -2, 0}) {
    plugin_.free(plugin_.alloc(kMiB, device), static_cast<std::size_t>(wrong), device);
  }
  EXPECT_EQ(plugin_.numbers(device)["misuses.wrong_size"], 4u);
  EXPECT_EQ(plugin_.stats(device).live_blocks, 0u);
}

TEST_F(PluginTest, AWrongDeviceAtFreeIsCountedAndIgnored) {
  const int own = fresh_device();
  const int other = fresh_device();
  void* const kept = plugin_.alloc(kMiB, other);
  for (const int named : {other, -1, 63}) {
    const auto before = plugin_.counters().wrong_devices;
    void* const block = plugin_.alloc(2 * kMiB, own);
    plugin_.free(block, 2 * kMiB, named);
    EXPECT_EQ(plugin_.counters().wrong_devices, before + 1);
    EXPECT_EQ(plugin_.stats(own).live_blocks, 0u);
  }
  EXPECT_EQ(plugin_.stats(other).misuses, 0u);
  plugin_.free(kept, kMiB, other);
}

TEST_F(PluginTest, AfterAFreeOnAWrongStreamTheBlockWaitsForBoth) {
  const int device = fresh_device();
  const auto own = plugin_.make_stream(device);
  const auto other = plugin_.make_stream(device);
  const auto before = plugin_.counters().wrong_streams;
  void* const block = plugin_.alloc(kMiB, device, own);
  plugin_.launch(device, other, block, kMiB);
  plugin_.free(block, kMiB, device, other);
  EXPECT_EQ(plugin_.counters().wrong_streams, before + 1);
  EXPECT_EQ(plugin_.stats(device).live_blocks, 0u);
  void* const next = plugin_.alloc(kMiB, device, own);
  EXPECT_NE(next, block);
  plugin_.complete(device, other);
  plugin_.complete(device, own);
  plugin_.free(next, kMiB, device, own);
}

TEST_F(PluginTest, AFreeOnAStreamThatDoesNotExistIsCountedAndTheBlockIsHeldBack) {
  const int device = fresh_device();
  const auto own = plugin_.make_stream(device);
  const auto before = plugin_.counters().wrong_streams;
  void* const block = plugin_.alloc(kMiB, device, own);
  plugin_.free(block, kMiB, device,
               reinterpret_cast<gpupool_raw_stream>(std::uintptr_t{0x1234560}));
  EXPECT_EQ(plugin_.counters().wrong_streams, before + 1);
  EXPECT_EQ(plugin_.stats(device).live_blocks, 0u);
  EXPECT_EQ(plugin_.numbers(device)["misuses.unknown_stream"], 1u);
  // Whoever used it has no event: it is pending until the device was waited for.
  void* const next = plugin_.alloc(kMiB, device, own);
  EXPECT_NE(next, block);
  EXPECT_GE(plugin_.stats(device).pending_bytes, kMiB);
  plugin_.free(next, kMiB, device, own);
  plugin_.find<decltype(gpupool_torch_reset)>("gpupool_torch_reset")();
  EXPECT_EQ(plugin_.stats(device).pending_bytes, 0u);
}

TEST_F(PluginTest, AUseByAStreamThatDoesNotExistIsSaidAndTheBlockIsHeldBack) {
  const int device = fresh_device();
  const auto own = plugin_.make_stream(device);
  void* const block = plugin_.alloc(kMiB, device, own);
  EXPECT_THROW(
      plugin_.record_stream(block, reinterpret_cast<gpupool_raw_stream>(std::uintptr_t{0x1234560})),
      std::runtime_error);
  plugin_.free(block, kMiB, device, own);
  EXPECT_NE(plugin_.alloc(kMiB, device, own), block);
  EXPECT_GE(plugin_.stats(device).pending_bytes, kMiB);
}

TEST_F(PluginTest, TheLegacyStreamIsOneByEitherHandle) {
  const int device = fresh_device();
  const auto legacy = reinterpret_cast<gpupool_raw_stream>(std::uintptr_t{1});
  const auto captured = plugin_.make_stream(device);
  const auto wrong = plugin_.counters().wrong_streams;
  plugin_.find<decltype(gpupool_simulated_begin_capture)>("gpupool_simulated_begin_capture")(
      plugin_.pool(device), captured);
  void* const block = plugin_.alloc(kMiB, device, legacy);
  plugin_.record_stream(block, nullptr);
  plugin_.find<decltype(gpupool_simulated_end_capture)>("gpupool_simulated_end_capture")(
      plugin_.pool(device), captured);
  plugin_.free(block, kMiB, device, nullptr);
  EXPECT_EQ(plugin_.counters().wrong_streams, wrong);
  EXPECT_EQ(plugin_.alloc(kMiB, device, nullptr), block);
  plugin_.free(block, kMiB, device, legacy);
  EXPECT_EQ(plugin_.stats(device).misuses, 0u);
  EXPECT_EQ(plugin_.stats(device).live_blocks, 0u);
}

TEST_F(PluginTest, ABlockWhoseStreamEndedIsFreedAllTheSame) {
  const int device = fresh_device();
  const auto ended = plugin_.make_stream(device);
  void* const block = plugin_.alloc(kMiB, device, ended);
  plugin_.find<decltype(gpupool_simulated_destroy_stream)>("gpupool_simulated_destroy_stream")(
      plugin_.pool(device), ended);
  const auto next = plugin_.make_stream(device);  // has the handle of the one that ended
  ASSERT_EQ(next, ended);
  void* const other = plugin_.alloc(kMiB, device, next);  // by which the pool learns of it
  plugin_.free(block, kMiB, device, ended);
  plugin_.free(other, kMiB, device, next);
  EXPECT_EQ(plugin_.stats(device).live_blocks, 0u);
}

TEST_F(PluginTest, ForeignAndDoubleFreesAreCountedAndIgnored) {
  const int device = fresh_device();
  const auto before = plugin_.counters().foreign_frees;
  void* const block = plugin_.alloc(kMiB, device);
  int local = 0;
  plugin_.free(&local, 4, device);
  plugin_.free(static_cast<char*>(block) + 512, 4, device);
  plugin_.free(block, kMiB, device);
  plugin_.free(block, kMiB, device);
  EXPECT_EQ(plugin_.counters().foreign_frees, before + 3);
  auto numbers = plugin_.numbers(device);
  EXPECT_EQ(numbers["misuses.foreign_pointer"], 1u);
  EXPECT_EQ(numbers["misuses.interior_pointer"], 1u);
  EXPECT_EQ(numbers["misuses.double_free"], 1u);
  plugin_.free(&local, 4, 62);  // a device without a pool
  EXPECT_EQ(plugin_.counters().foreign_frees, before + 4);
}

TEST_F(PluginTest, RecordStreamKeepsABlockUntilThatStreamIsDone) {
  const int device = fresh_device();
  const auto own = plugin_.make_stream(device);
  const auto side = plugin_.make_stream(device);
  void* const block = plugin_.alloc(kMiB, device, own);
  plugin_.record_stream(block, own);  // says nothing new
  plugin_.record_stream(block, side);
  plugin_.launch(device, side, block, kMiB);
  plugin_.free(block, kMiB, device, own);
  void* const next = plugin_.alloc(kMiB, device, own);
  EXPECT_NE(next, block);
  plugin_.free(next, kMiB, device, own);
  plugin_.complete(device, side);
  EXPECT_EQ(plugin_.stats(device).pending_bytes, 0u);
  const auto before = plugin_.counters().foreign_frees;
  int local = 0;
  plugin_.record_stream(&local, side);
  EXPECT_EQ(plugin_.counters().foreign_frees, before + 1);
}

TEST_F(PluginTest, BaseAllocationIsTheBlockAndItsSize) {
  const int device = fresh_device();
  const auto base_alloc =
      plugin_.find<decltype(gpupool_torch_base_alloc)>("gpupool_torch_base_alloc");
  void* const block = plugin_.alloc(3 * kMiB, device);
  std::size_t bytes = 0;
  EXPECT_EQ(base_alloc(block, &bytes), block);
  EXPECT_EQ(bytes, 3 * kMiB);
  int local = 0;
  EXPECT_EQ(base_alloc(&local, &bytes), &local);
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(base_alloc(block, nullptr), block);
  plugin_.free(block, 3 * kMiB, device);
}

TEST_F(PluginTest, EmptyCacheGivesEmptyMemoryBack) {
  const int device = fresh_device();
  void* const block = plugin_.alloc(64 * kMiB, device);
  void* const small = plugin_.alloc(4096, device);
  plugin_.free(block, 64 * kMiB, device);
  plugin_.free(small, 4096, device);
  EXPECT_GT(plugin_.stats(device).held_bytes, 0u);
  plugin_.find<decltype(gpupool_torch_reset)>("gpupool_torch_reset")();
  EXPECT_EQ(plugin_.stats(device).held_bytes, 0u);
}

TEST_F(PluginTest, TheMemoryFractionIsOfTheWholeCardAndMayChange) {
  const int device = fresh_device();
  const auto set =
      plugin_.find<decltype(gpupool_torch_memory_fraction)>("gpupool_torch_memory_fraction");
  set(0.5, device);
  EXPECT_EQ(plugin_.stats(device).limit_bytes, 70 * kGiB);
  void* const block = plugin_.alloc(kGiB, device);
  set(0.25, device);
  EXPECT_EQ(plugin_.stats(device).limit_bytes, 35 * kGiB);
  EXPECT_NE(thrown([&] { plugin_.alloc(36 * kGiB, device); }).find("limit"), std::string::npos);
  // Also to more than the pool began with, and to less than is held.
  set(1.0, device);
  EXPECT_EQ(plugin_.stats(device).limit_bytes, 140 * kGiB);
  plugin_.free(plugin_.alloc(100 * kGiB, device), 100 * kGiB, device);
  set(0.001, device);
  plugin_.find<decltype(gpupool_torch_reset)>("gpupool_torch_reset")();
  EXPECT_EQ(plugin_.stats(device).held_bytes, kGiB);
  EXPECT_NE(thrown([&] { plugin_.alloc(2 * kMiB, device); }).find("limit"), std::string::npos);
  EXPECT_NE(thrown([&] { set(1e-9, device); }).find("less than one page"), std::string::npos);
  EXPECT_EQ(plugin_.stats(device).live_requested_bytes, kGiB);
  plugin_.free(block, kGiB, device);
  EXPECT_NE(thrown([&] { set(0.0, fresh_device()); }).find("memory fraction"), std::string::npos);
  EXPECT_NE(thrown([&] { set(1.5, fresh_device()); }).find("memory fraction"), std::string::npos);
}

/// Memory of a graph, from the capture to the last replay.
class PluginCaptureTest : public PluginTest {
 protected:
  void begin(int device, gpupool_torch_pool_id id, gpupool_raw_stream stream) {
    plugin_.find<decltype(gpupool_torch_begin_allocate_to_pool)>(
        "gpupool_torch_begin_allocate_to_pool")(
        device, id, [stream](gpupool_raw_stream other) { return other == stream; });
    plugin_.find<decltype(gpupool_simulated_begin_capture)>("gpupool_simulated_begin_capture")(
        plugin_.pool(device), stream);
  }
  void end(int device, gpupool_torch_pool_id id, gpupool_raw_stream stream) {
    plugin_.find<decltype(gpupool_simulated_end_capture)>("gpupool_simulated_end_capture")(
        plugin_.pool(device), stream);
    plugin_.find<decltype(gpupool_torch_end_allocate_to_pool)>(
        "gpupool_torch_end_allocate_to_pool")(device, id);
  }
  void release(int device, gpupool_torch_pool_id id) {
    plugin_.find<decltype(gpupool_torch_release_pool)>("gpupool_torch_release_pool")(device, id);
  }
};

// Two graphs share a pool, and one of them is destroyed.
TEST_F(PluginCaptureTest, APoolIsReleasedWithTheLastOfThoseThatBeganIt) {
  const int device = fresh_device();
  const gpupool_torch_pool_id id(5, 0);
  plugin_.free(plugin_.alloc(kMiB, device), kMiB, device);
  const auto stream = plugin_.make_stream(device);
  for (int graph = 0; graph < 2; ++graph) {
    begin(device, id, stream);
    plugin_.free(plugin_.alloc(32 * kMiB, device, stream), 32 * kMiB, device, stream);
    end(device, id, stream);
  }
  const auto pinned = [&] {
    plugin_.find<decltype(gpupool_torch_reset)>("gpupool_torch_reset")();
    return plugin_.stats(device).pinned_bytes;
  };
  release(device, id);
  EXPECT_GE(pinned(), 32 * kMiB);
  release(device, id);
  EXPECT_EQ(pinned(), 0u);
}

TEST_F(PluginCaptureTest, WhatACaptureUsedIsNobodyElsesUntilItsPoolIsReleased) {
  const int device = fresh_device();
  const gpupool_torch_pool_id id(3, 0);
  plugin_.free(plugin_.alloc(kMiB, device), kMiB, device);
  const auto stream = plugin_.make_stream(device);
  begin(device, id, stream);
  void* const block = plugin_.alloc(32 * kMiB, device, stream);
  plugin_.free(block, 32 * kMiB, device, stream);
  // The capture itself may use it again, as the graph runs in its order.
  EXPECT_EQ(plugin_.alloc(32 * kMiB, device, stream), block);
  plugin_.free(block, 32 * kMiB, device, stream);
  end(device, id, stream);
  EXPECT_GE(plugin_.stats(device).pinned_bytes, 32 * kMiB);
  void* const later = plugin_.alloc(32 * kMiB, device, stream);
  EXPECT_NE(later, block);
  plugin_.free(later, 32 * kMiB, device, stream);
  plugin_.find<decltype(gpupool_torch_reset)>("gpupool_torch_reset")();
  EXPECT_GE(plugin_.stats(device).held_bytes, 32 * kMiB);
  release(device, id);
  release(device, id);
  plugin_.complete(device, stream);
  plugin_.complete(device, stream);
  EXPECT_EQ(plugin_.stats(device).pinned_bytes, 0u);
  plugin_.find<decltype(gpupool_torch_reset)>("gpupool_torch_reset")();
  EXPECT_EQ(plugin_.stats(device).held_bytes, 0u);
  EXPECT_EQ(plugin_.stats(device).misuses, 0u);
}

TEST_F(PluginCaptureTest, ATensorOfACaptureIsFreedAfterItOnItsOwnStream) {
  const int device = fresh_device();
  const gpupool_torch_pool_id id(4, 0);
  plugin_.free(plugin_.alloc(kMiB, device), kMiB, device);
  const auto stream = plugin_.make_stream(device);
  const auto before = plugin_.counters().wrong_streams;
  begin(device, id, stream);
  void* const small = plugin_.alloc(1000, device, stream);
  void* const large = plugin_.alloc(8 * kMiB, device, stream);
  end(device, id, stream);
  plugin_.free(small, 1000, device, stream);
  plugin_.free(large, 8 * kMiB, device, stream);
  EXPECT_EQ(plugin_.counters().wrong_streams, before);
  EXPECT_EQ(plugin_.stats(device).live_blocks, 0u);
  EXPECT_NE(plugin_.alloc(8 * kMiB, device, stream), large);
  release(device, id);
}

TEST_F(PluginCaptureTest, EndAndReleaseOfWhatNeverBeganDoNothing) {
  const int device = fresh_device();
  const gpupool_torch_pool_id id(5, 0);
  plugin_.find<decltype(gpupool_torch_end_allocate_to_pool)>("gpupool_torch_end_allocate_to_pool")(
      device, id);
  release(device, id);
  EXPECT_EQ(plugin_.pool(device, /*create=*/false), nullptr);
}

TEST_F(PluginTest, ManyThreadsMakeOnePool) {
  const int device = fresh_device();
  const auto before = plugin_.counters().devices;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        void* const block = plugin_.alloc(kMiB, device);
        plugin_.free(block, kMiB, device);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(plugin_.counters().devices, before + 1);
  EXPECT_EQ(plugin_.stats(device).live_blocks, 0u);
  EXPECT_EQ(plugin_.stats(device).misuses, 0u);
}

TEST_F(PluginTest, ASecondCopyOfTheLibraryRefusesAndNamesTheFirst) {
  const int device = fresh_device();
  plugin_.free(plugin_.alloc(kMiB, device), kMiB, device);
  const std::string path =
      ::testing::TempDir() + "gpupool_copy_" + std::to_string(getpid()) + ".so";
  std::filesystem::copy_file(GPUPOOL_TORCH_PLUGIN, path,
                             std::filesystem::copy_options::overwrite_existing);
  const Plugin copy(path);
  const std::string text = thrown([&] { copy.alloc(kMiB, device); });
  EXPECT_NE(text.find("another copy of the plug-in already serves this process: " +
                      std::string(GPUPOOL_TORCH_PLUGIN)),
            std::string::npos)
      << text;
  EXPECT_EQ(copy.alloc_or_null(kMiB, device), nullptr);
  EXPECT_NE(copy.configure(nullptr), GPUPOOL_OK);
  EXPECT_EQ(copy.counters().devices, 0u);
  plugin_.free(plugin_.alloc(kMiB, device), kMiB, device);
  std::filesystem::remove(path);
}

TEST_F(PluginTest, TheSameFileLoadedTwiceIsOneLibrary) {
  const int device = fresh_device();
  void* const block = plugin_.alloc(kMiB, device);
  const Plugin again;
  again.free(block, kMiB, device);
  EXPECT_EQ(plugin_.stats(device).live_blocks, 0u);
}

}  // namespace
}  // namespace gpupool::testing
