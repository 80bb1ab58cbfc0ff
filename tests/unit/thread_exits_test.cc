// Threads that end: who is told, when, and who is not any more.
#include "base/thread_exits.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/hot_slot.h"

namespace gpupool::internal {
namespace {

/// Who wants to know, and what it was told.
struct Owner {
  std::vector<int> told;  // contexts, in order
  std::thread::id by;
  std::atomic<bool> is_held{false};
  std::atomic<bool> is_inside{false};
  std::atomic<bool> has_returned{false};

  static void on_exit(void* owner, void* context) {
    Owner& self = *static_cast<Owner*>(owner);
    self.by = std::this_thread::get_id();
    self.is_inside = true;
    while (self.is_held) std::this_thread::yield();
    self.told.push_back(*static_cast<int*>(context));
    self.has_returned = true;
  }
  ThreadExitEntry entry(int& context) {
    return {.on_exit = on_exit, .owner = this, .context = &context};
  }
};

TEST(ThreadExitsTest, TheThreadItselfTellsWhileItStillRuns) {
  Owner owner;
  int context = 7;
  ThreadExitEntry entry = owner.entry(context);
  std::thread::id id;
  std::thread([&] {
    id = std::this_thread::get_id();
    EXPECT_TRUE(watch_thread(entry));
    EXPECT_EQ(find_own_entry(&owner), &entry);
    EXPECT_EQ(find_own_entry(this), nullptr);
    EXPECT_TRUE(owner.told.empty());
  }).join();
  EXPECT_EQ(owner.told, std::vector<int>{7});
  EXPECT_EQ(owner.by, id);
  EXPECT_EQ(find_own_entry(&owner), nullptr);  // it was the other thread's
}

TEST(ThreadExitsTest, SeveralOwnersOfOneThread) {
  Owner first;
  Owner second;
  int context = 1;
  ThreadExitEntry a = first.entry(context);
  ThreadExitEntry b = second.entry(context);
  std::thread([&] {
    EXPECT_TRUE(watch_thread(a));
    EXPECT_TRUE(watch_thread(b));
    EXPECT_EQ(find_own_entry(&first), &a);
    EXPECT_EQ(find_own_entry(&second), &b);
    forget_thread(a);
    EXPECT_EQ(find_own_entry(&first), nullptr);
    EXPECT_TRUE(watch_thread(a));  // and again
  }).join();
  EXPECT_EQ(first.told.size(), 1u);
  EXPECT_EQ(second.told.size(), 1u);
}

TEST(ThreadExitsTest, WhoForgetsIsNotTold) {
  Owner owner;
  Owner other;
  int context = 1;
  std::vector<ThreadExitEntry> entries(3, owner.entry(context));
  ThreadExitEntry kept = other.entry(context);
  std::atomic<int> step{0};
  std::thread thread([&] {
    EXPECT_TRUE(watch_thread(entries[0]));
    EXPECT_TRUE(watch_thread(kept));
    EXPECT_TRUE(watch_thread(entries[1]));
    EXPECT_TRUE(watch_thread(entries[2]));
    step = 1;
    while (step != 2) std::this_thread::yield();
  });
  while (step != 1) std::this_thread::yield();
  // By another thread, from the middle, the front and the back of the list; twice is once.
  for (const int i : {1, 2, 0, 0}) forget_thread(entries[static_cast<std::size_t>(i)]);
  step = 2;
  thread.join();
  EXPECT_TRUE(owner.told.empty());
  EXPECT_EQ(other.told.size(), 1u);
  wait_for_exits(&owner);
}

TEST(ThreadExitsTest, AnOwnerThatEndsWaitsForTheCallThatIsUnderWay) {
  Owner owner;
  Owner other;
  int context = 1;
  ThreadExitEntry entry = owner.entry(context);
  owner.is_held = true;
  std::thread thread([&] { EXPECT_TRUE(watch_thread(entry)); });
  while (!owner.is_inside) std::this_thread::yield();
  forget_thread(entry);
  wait_for_exits(&other);  // of another owner there is none
  EXPECT_FALSE(owner.has_returned);
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    owner.is_held = false;
  });
  wait_for_exits(&owner);
  EXPECT_TRUE(owner.has_returned);
  release.join();
  thread.join();
  EXPECT_EQ(owner.told.size(), 1u);
}

TEST(ThreadExitsTest, ACallThatTakesLongHoldsUpNobodyElse) {
  Owner slow;
  Owner quick;
  int context = 1;
  ThreadExitEntry slow_entry = slow.entry(context);
  ThreadExitEntry quick_entry = quick.entry(context);
  slow.is_held = true;
  std::thread thread([&] { EXPECT_TRUE(watch_thread(slow_entry)); });
  while (!slow.is_inside) std::this_thread::yield();
  std::thread([&] { EXPECT_TRUE(watch_thread(quick_entry)); }).join();
  EXPECT_EQ(quick.told.size(), 1u);
  slow.is_held = false;
  thread.join();
}

/// Notes, in its destructor, what was told by then.
struct AtThreadEnd {
  explicit AtThreadEnd(Owner& owner_to_ask, std::size_t& told) : owner(owner_to_ask), out(told) {}
  ~AtThreadEnd() { out = owner.told.size(); }
  AtThreadEnd(const AtThreadEnd&) = delete;
  AtThreadEnd& operator=(const AtThreadEnd&) = delete;
  Owner& owner;
  std::size_t& out;
};

TEST(ThreadExitsTest, ComesAfterTheDestructorsOfTheThreadsObjects) {
  for (const bool is_made_first : {true, false}) {
    Owner owner;
    int context = 1;
    ThreadExitEntry entry = owner.entry(context);
    std::size_t told_by_then = 99;
    std::thread([&] {
      EXPECT_TRUE(is_made_first || watch_thread(entry));
      thread_local const AtThreadEnd at_end(owner, told_by_then);
      EXPECT_TRUE(!is_made_first || watch_thread(entry));
    }).join();
    EXPECT_EQ(told_by_then, 0u);
    EXPECT_EQ(owner.told.size(), 1u);
  }
}

/// What a key of the program's own sees when it is destroyed, before or after ours.
struct KeyProbe {
  Owner* owner = nullptr;
  ThreadExitEntry* late = nullptr;
  std::size_t told = 0;
  bool was_watched = true;
  bool was_ending = false;
};

TEST(ThreadExitsTest, AThreadThatIsEndingIsWatchedNoMore) {
  // Keys are destroyed in the order of their numbers, in glibc: the later key comes after ours.
  Owner owner;
  int context = 1;
  ThreadExitEntry entry = owner.entry(context);
  ThreadExitEntry late = owner.entry(context);
  KeyProbe probe{&owner, &late};
  pthread_key_t key{};
  ASSERT_EQ(::pthread_key_create(&key,
                                 [](void* value) {
                                   KeyProbe& seen = *static_cast<KeyProbe*>(value);
                                   seen.told = seen.owner->told.size();
                                   seen.was_ending = hot_slot.is_ending;
                                   seen.was_watched = watch_thread(*seen.late);
                                 }),
            0);
  std::thread([&] {
    EXPECT_TRUE(watch_thread(entry));
    ASSERT_EQ(::pthread_setspecific(key, &probe), 0);
  }).join();
  ::pthread_key_delete(key);
  EXPECT_EQ(probe.told, 1u);
  EXPECT_TRUE(probe.was_ending);
  EXPECT_FALSE(probe.was_watched);
  EXPECT_EQ(owner.told.size(), 1u);
  EXPECT_EQ(late.list, nullptr);
}

TEST(ThreadExitsTest, ManyThreadsAndOwnersThatEndMeanwhile) {
  constexpr int kThreads = 8;
  int context = 1;
  std::atomic<int> calls{0};
  struct Counting {
    std::atomic<int>* calls;
    std::atomic<bool> is_alive{true};
    std::atomic<int> late{0};
  };
  for (int round = 0; round < 50; ++round) {
    Counting owner{&calls};
    std::vector<ThreadExitEntry> entries(kThreads, {.on_exit =
                                                        [](void* self, void*) {
                                                          Counting& counting =
                                                              *static_cast<Counting*>(self);
                                                          if (!counting.is_alive) ++counting.late;
                                                          ++*counting.calls;
                                                        },
                                                    .owner = &owner,
                                                    .context = &context});
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&entries, i] { watch_thread(entries[static_cast<std::size_t>(i)]); });
    }
    // Half of them are waited for, the other half end while the owner does.
    for (int i = 0; i < kThreads / 2; ++i) threads[static_cast<std::size_t>(i)].join();
    for (ThreadExitEntry& entry : entries) forget_thread(entry);
    // A thread may start to watch only now; as in a pool, which nobody may use by then.
    for (int i = kThreads / 2; i < kThreads; ++i) threads[static_cast<std::size_t>(i)].join();
    for (ThreadExitEntry& entry : entries) forget_thread(entry);
    wait_for_exits(&owner);
    owner.is_alive = false;
    EXPECT_EQ(owner.late, 0);
  }
  EXPECT_GE(calls, 50 * kThreads / 2);
}

}  // namespace
}  // namespace gpupool::internal
