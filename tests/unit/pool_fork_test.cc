// A forked child gets a clear error from a pool of its parent's, touches nothing, and leaves
// quietly; the parent goes on.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>

#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

constexpr int kDone = 17;

/// Runs `body` in a forked child, which ends with what that gives, or by a signal after 20 s.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a lock that is never given back
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class PoolForkTest : public PoolFixture {};

TEST_F(PoolForkTest, EachCallIsRefusedAndTouchesNoDriver) {
  void* const block = allocate(kMiB);
  void* const cached = allocate(4 * kKiB);
  free(cached);
  const std::uint64_t calls = backend_.call_count();
  const int ended = in_child([&] {
    // What the thread's own cache has would be served without a look at anything.
    const auto again = pool_->allocate(4 * kKiB, a_);
    if (again.ok() || again.error() != Error::not_supported) return 1;
    if (pool_->allocate(4 * kKiB, raw_a_).ok()) return 2;
    if (pool_->deallocate(block, a_) || pool_->deallocate(block, raw_a_)) return 3;
    if (pool_->deallocate(block, kMiB, a_)) return 4;
    if (pool_->adopt_stream(raw_b_).ok() || pool_->release_stream(b_)) return 5;
    if (pool_->record_stream(block, b_) || pool_->record_use(block, b_)) return 6;
    if (pool_->find_size(block).ok() || pool_->find_export(block).ok()) return 7;
    if (pool_->would_fit(512) != Fit::no) return 8;
    if (pool_->trim(0) != 0 || pool_->drain_caches() != 0) return 9;
    if (pool_->maintain().more_to_do) return 10;
    if (pool_->reconfigure({}).ok() || pool_->record("/dev/null").ok()) return 11;
    if (pool_->stop_recording().ok()) return 12;
    pool_->reset_peaks();
    pool_->check_invariants();
    pool_->visit_blocks([](const BlockInfo&) { _exit(13); });
    if (pool_->last_failure().text().find("forked child") == std::string::npos) return 14;
    if (pool_->stats().closed_calls < 12 || pool_->stats().requests != 0) return 15;
    pool_.reset();
    return backend_.call_count() == calls ? kDone : 16;
  });
  EXPECT_EQ(ended, kDone);
  // The parent is as it was.
  EXPECT_EQ(pool_->stats().closed_calls, 0u);
  EXPECT_EQ(allocate(4 * kKiB), cached);
  free(cached);
  free(block);
  EXPECT_TRUE(misuses_.empty());
}

TEST_F(PoolForkTest, ALockThatAnotherThreadHeldIsWaitedForByNobody) {
  void* const block = allocate(kMiB);
  // The pool's lock and the device's are held at the fork, by threads that the child does not have.
  std::atomic<bool> is_inside{false};
  std::atomic<bool> may_go{false};
  std::thread holder([&] {
    pool_->visit_blocks([&](const BlockInfo&) {
      is_inside = true;
      while (!may_go) std::this_thread::yield();
    });
  });
  while (!is_inside) std::this_thread::yield();
  const int ended = in_child([&] {
    if (pool_->allocate(kMiB, a_).ok() || pool_->deallocate(block, a_)) return 1;
    if (pool_->stats().closed_calls < 2) return 2;
    pool_.reset();
    return kDone;
  });
  may_go = true;
  holder.join();
  EXPECT_EQ(ended, kDone);
  free(block);
}

TEST_F(PoolForkTest, AChildThatExitsRunsItsDestructorsQuietly) {
  free(allocate(kMiB));
  const std::uint64_t calls = backend_.call_count();
  const int ended = in_child([&] {
    // As a thread that ends does in the parent.
    std::thread other([&] { static_cast<void>(pool_->allocate(512, a_).ok()); });
    other.join();
    pool_.reset();
    return backend_.call_count() == calls ? kDone : 1;
  });
  EXPECT_EQ(ended, kDone);
}

TEST_F(PoolForkTest, AChildMayHaveAPoolOfItsOwn) {
  free(allocate(kMiB));
  const int ended = in_child([] {
    SimulatedBackend device({.capacity_bytes = 64 * kMiB});
    auto pool = Pool::create(device, {});
    if (!pool.ok()) return 1;
    const StreamRef stream = pool.value()->adopt_stream(device.create_stream()).value();
    for (int i = 0; i < 100; ++i) {
      const auto block = pool.value()->allocate(kMiB, stream);
      if (!block.ok() || !pool.value()->deallocate(block.value(), stream)) return 2;
    }
    if (pool.value()->stats().hits < 98) return 3;
    pool.value().reset();
    return device.object_count() == 0 ? kDone : 4;
  });
  EXPECT_EQ(ended, kDone);
}

TEST_F(PoolForkTest, AGrandchildIsRefusedTheChildsPool) {
  const int ended = in_child([] {
    SimulatedBackend device({.capacity_bytes = 64 * kMiB});
    auto pool = Pool::create(device, {}).value();
    const StreamRef stream = pool->adopt_stream(device.create_stream()).value();
    const int inner = in_child([&] { return pool->allocate(512, stream).ok() ? 1 : kDone; });
    if (inner != kDone) return 1;
    return pool->allocate(512, stream).ok() ? kDone : 2;
  });
  EXPECT_EQ(ended, kDone);
}

}  // namespace
}  // namespace gpupool
