// Pools that C++ makes and C uses: what the handle 0 names, and that one table says what both
// interfaces count.
#include "gpupool/c_handle.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "gpupool/simulated_backend.h"

namespace gpupool {
namespace {

struct HandleDeleter {
  void operator()(gpupool_pool* pool) const { gpupool_destroy(pool); }
};
using Handle = std::unique_ptr<gpupool_pool, HandleDeleter>;

Handle make_handle(DefaultStream default_stream) {
  auto backend = std::make_unique<SimulatedBackend>();
  auto pool = Pool::create(*backend, {});
  return Handle(make_c_handle(std::move(backend), std::move(pool).value(), default_stream));
}

std::uint64_t stream_of(gpupool_pool* handle, const void* block) {
  std::uint64_t id = 0;
  pool_of(handle).visit_blocks([&](const BlockInfo& info) {
    if (info.address == reinterpret_cast<DeviceAddress>(block)) id = info.stream_id;
  });
  return id;
}

std::array<std::uint64_t, 2> streams_of_two_threads(gpupool_pool* handle) {
  std::array<void*, 2> blocks{};
  std::array<std::uint64_t, 2> ids{};
  EXPECT_EQ(gpupool_allocate(handle, 4096, nullptr, &blocks[0]), GPUPOOL_OK);
  ids[0] = stream_of(handle, blocks[0]);
  std::thread([&] {
    EXPECT_EQ(gpupool_allocate(handle, 4096, nullptr, &blocks[1]), GPUPOOL_OK);
    ids[1] = stream_of(handle, blocks[1]);
    EXPECT_EQ(gpupool_deallocate(handle, blocks[1], nullptr), GPUPOOL_OK);
  }).join();
  EXPECT_EQ(gpupool_deallocate(handle, blocks[0], nullptr), GPUPOOL_OK);
  return ids;
}

TEST(CHandle, ZeroIsTheLegacyStreamOfAllThreads) {
  const Handle handle = make_handle(DefaultStream::legacy);
  const auto ids = streams_of_two_threads(handle.get());
  EXPECT_NE(ids[0], 0u);
  EXPECT_EQ(ids[0], ids[1]);
}

TEST(CHandle, ZeroIsEachThreadsOwnStreamWhereThatIsSaid) {
  const Handle handle = make_handle(DefaultStream::per_thread);
  const auto ids = streams_of_two_threads(handle.get());
  EXPECT_NE(ids[0], 0u);
  EXPECT_NE(ids[1], 0u);
  EXPECT_NE(ids[0], ids[1]);
}

TEST(CHandle, EachThreadHasItsOwnErrorText) {
  const Handle handle = make_handle(DefaultStream::legacy);
  std::size_t bytes = 0;
  EXPECT_EQ(gpupool_find_size(handle.get(), &bytes, &bytes), GPUPOOL_INVALID_ARGUMENT);
  const std::string own = gpupool_last_error();
  EXPECT_FALSE(own.empty());
  std::thread([] { EXPECT_EQ(std::string(gpupool_last_error()), ""); }).join();
  EXPECT_EQ(gpupool_last_error(), own);
}

TEST(FindStream, NamesTheStreamThatTheBlockWasAskedForOn) {
  SimulatedBackend backend;
  auto pool = Pool::create(backend, {}).value();
  const RawStream first = backend.create_stream();
  const RawStream second = backend.create_stream();
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{64} << 10, std::size_t{8} << 20}) {
    void* const a = pool->allocate(bytes, first).value();
    void* const b = pool->allocate(bytes, second).value();
    EXPECT_TRUE(pool->find_stream(a).value() == first);
    EXPECT_TRUE(pool->find_stream(b).value() == second);
    EXPECT_FALSE(pool->find_stream(static_cast<char*>(a) + 1).ok());
    EXPECT_TRUE(pool->deallocate(a, first));
    EXPECT_TRUE(pool->deallocate(b, second));
    EXPECT_FALSE(pool->find_stream(a).ok());
  }
  EXPECT_FALSE(pool->find_stream(&backend).ok());
}

TEST(FindStream, OfABlockWhoseStreamHasEndedNamesNone) {
  SimulatedBackend backend;
  auto pool = Pool::create(backend, {}).value();
  const RawStream stream = backend.create_stream();
  void* const block = pool->allocate(4096, stream).value();
  EXPECT_TRUE(pool->release_stream(pool->adopt_stream(stream).value()));
  EXPECT_EQ(pool->find_stream(block).value(), std::nullopt);
  EXPECT_TRUE(pool->deallocate(block, RawStream{nullptr}));
}

}  // namespace
}  // namespace gpupool
