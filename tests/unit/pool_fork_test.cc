// A forked child gets a clear error from a pool of its parent's, touches nothing, and leaves
// quietly; the parent goes on.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

/// Beyond the number of any call.
constexpr int kDone = 100;

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

class PoolForkTest : public PoolFixture {
 protected:
  /// Calls each public method in the child; the number of the first that is not refused, or 0.
  int call_each(void* block) {
    int number = 1;
    for (const auto& is_refused : calls(block)) {
      if (!is_refused()) return number;
      ++number;
    }
    return 0;
  }

 private:
  using Calls = std::vector<std::function<bool()>>;
  Calls calls(void* block) {
    Calls all = memory_calls(block);
    for (const auto& add : {stream_calls(block), question_calls(block), upkeep_calls()}) {
      all.insert(all.end(), add.begin(), add.end());
    }
    return all;
  }
  Calls memory_calls(void* block) {
    AllocationRequest request;
    request.bytes = kMiB;
    return {
        // What the thread's own cache has would be served without a look at anything.
        [this] { return pool_->allocate(4 * kKiB, a_).error() == Error::not_supported; },
        [this] { return !pool_->allocate(4 * kKiB, raw_a_).ok(); },
        [this, request] { return !pool_->allocate(request, a_).ok(); },
        [this, request] { return !pool_->allocate(request, raw_a_).ok(); },
        [this, request] { return !pool_->allocate_for_any_stream(request).ok(); },
        [this, block] { return !pool_->deallocate(block, a_); },
        [this, block] { return !pool_->deallocate(block, raw_a_); },
        [this, block] { return !pool_->deallocate(block, kMiB, a_); },
        [this, block] { return !pool_->deallocate(block, kMiB, raw_a_); },
        [this, block] { return !pool_->deallocate_unused(block, kMiB); },
    };
  }
  Calls stream_calls(void* block) {
    return {
        [this] { return !pool_->adopt_stream(raw_b_).ok(); },
        [this] { return !pool_->release_stream(b_); },
        [this, block] { return !pool_->record_stream(block, b_); },
        [this, block] { return !pool_->record_use(block, b_); },
        [this] { return !pool_->note_dependency(a_, b_); },
        [this] {
          return is_gone(pool_->begin_allocate_to_pool({7, 1}, [](auto) { return true; }));
        },
        [this] {
          return is_gone(pool_->end_allocate_to_pool({7, 1}));
        },
        [this] {
          return is_gone(pool_->release_pool({7, 1}));
        },
        [this] {
          return is_gone(pool_->begin_capture(a_, {7, 1}));
        },
        [this] { return is_gone(pool_->end_capture(a_)); },
    };
  }
  Calls question_calls(void* block) {
    return {
        [this, block] { return !pool_->find_size(block).ok(); },
        [this, block] { return pool_->find_stream(block).error() == Error::not_supported; },
        [this, block] { return !pool_->find_export(block).ok(); },
        [this] { return pool_->would_fit(512) == Fit::no; },
        [this] { return pool_->would_fit(512, a_) == Fit::no; },
        [this] { return pool_->last_failure().text().find("forked child") != std::string::npos; },
        [this] {
          bool has_visited = false;
          pool_->visit_blocks([&](const BlockInfo&) { has_visited = true; });
          return !has_visited;
        },
        [this] { return pool_->find_tag("weights").ok() && pool_->name() == "default"; },
        [this] { return pool_->tag_names().size() == 5 && pool_->device().name != ""; },
        [this] { return pool_->runtime_options().recycling == Recycling::eager; },
    };
  }
  Calls upkeep_calls() {
    return {
        [this] { return pool_->trim(0) == 0; },
        [this] { return pool_->drain_caches() == 0; },
        [this] { return !pool_->maintain().more_to_do; },
        [this] { return is_gone(pool_->reconfigure({})); },
        [this] { return is_gone(pool_->set_capacity(0.5)); },
        [this] { return is_gone(pool_->record("/dev/null")); },
        [this] { return is_gone(pool_->stop_recording()); },
        [this] { return pool_->check_canaries() == 0; },
        [this] { return (pool_->note_wrong_device(this, 1), true); },
        [this] {
          pool_->reset_peaks();
          pool_->check_invariants();
          return pool_->stats().closed_calls > 30 && pool_->stats().requests == 0;
        },
    };
  }
  template <class Result>
  static bool is_gone(const Result& result) {
    return !result.ok() && result.error().message.find("forked from") != std::string::npos;
  }
};

TEST_F(PoolForkTest, EachCallIsRefusedAndTouchesNoDriver) {
  void* const block = allocate(kMiB);
  void* const cached = allocate(4 * kKiB);
  free(cached);
  const std::uint64_t calls = backend_.call_count();
  const int ended = in_child([&] {
    if (const int number = call_each(block); number != 0) return number;
    pool_.reset();
    return backend_.call_count() == calls ? kDone : kDone + 1;
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
  // The pool's lock is held at the fork, by a thread that the child does not have.
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
    if (const int number = call_each(block); number != 0) return number;
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
