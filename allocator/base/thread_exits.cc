#include "base/thread_exits.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <new>

#include "base/hot_slot.h"
#include "base/mutex.h"

namespace gpupool::internal {
namespace {

// One lock for the lists of all threads, since an owner that ends takes its entries out of them.
constinit Mutex lists_mutex;
constinit thread_local ThreadExitEntry* thread_list GPUPOOL_TLS_MODEL = nullptr;

void unlink(ThreadExitEntry& entry) {
  (entry.previous != nullptr ? entry.previous->next : *entry.list) = entry.next;
  if (entry.next != nullptr) entry.next->previous = entry.previous;
  entry.previous = entry.next = nullptr;
  entry.list = nullptr;
}

/// A call of an owner that is under way, on the stack of the thread that ends.
struct Call {
  const void* owner = nullptr;
  Call* next = nullptr;
};
constinit Call* calls = nullptr;  // under the lock
constinit std::atomic<std::uint32_t> calls_ended{0};

bool has_call(const void* owner) {
  for (const Call* call = calls; call != nullptr; call = call->next) {
    if (call->owner == owner) return true;
  }
  return false;
}

void end_call(const Call& ended) {
  {
    const MutexLock lock(lists_mutex);
    Call** link = &calls;
    while (*link != &ended) link = &(*link)->next;
    *link = ended.next;
  }
  calls_ended.fetch_add(1);
  calls_ended.notify_all();
}

void on_thread_exit(void*) {
  hot_slot = HotSlot{.is_ending = true};
  for (;;) {
    Call call;
    ThreadExitEntry entry;
    {
      const MutexLock lock(lists_mutex);
      if (thread_list == nullptr) return;
      entry = *thread_list;
      unlink(*thread_list);
      call = {entry.owner, calls};
      calls = &call;
    }
    // Without the lock: the owner may wait for the driver, and the entry may serve another thread
    // before this returns. The owner does not go meanwhile: see wait_for_exits().
    entry.on_exit(entry.owner, entry.context);
    end_call(call);
  }
}

// A key of its own: unlike the destructor of a thread_local, its value needs no memory from the
// heap (glibc keeps the first 32 keys in the thread's descriptor), and it is called after all
// destructors of the thread's objects, which may free blocks of the pool.
class ExitKey {
 public:
  ExitKey() { has_key_ = ::pthread_key_create(&key_, on_thread_exit) == 0; }
  ~ExitKey() {
    if (has_key_) ::pthread_key_delete(key_);
  }
  ExitKey(const ExitKey&) = delete;
  ExitKey& operator=(const ExitKey&) = delete;
  bool arm() const { return has_key_ && ::pthread_setspecific(key_, this) == 0; }

 private:
  pthread_key_t key_{};
  bool has_key_ = false;
};

const ExitKey exit_key;

}  // namespace

bool watch_thread(ThreadExitEntry& entry) {
  if (hot_slot.is_ending) return false;
  const MutexLock lock(lists_mutex);
  if (!exit_key.arm()) return false;
  entry.list = &thread_list;
  entry.previous = nullptr;
  entry.next = thread_list;
  if (thread_list != nullptr) thread_list->previous = &entry;
  thread_list = &entry;
  return true;
}

void forget_thread(ThreadExitEntry& entry) {
  const MutexLock lock(lists_mutex);
  if (entry.list != nullptr) unlink(entry);
}

void wait_for_exits(const void* owner) {
  for (;;) {
    const std::uint32_t seen = calls_ended.load();
    {
      const MutexLock lock(lists_mutex);
      if (!has_call(owner)) return;
    }
    calls_ended.wait(seen);
  }
}

void forget_all_threads() {
  // Whoever held the lock is not here to give it back.
  new (&lists_mutex) Mutex;
  calls = nullptr;
  thread_list = nullptr;
  // What was at hand misses from now on, and the long way says why.
  hot_slot = HotSlot{.tag = hot_slot.tag};
}

ThreadExitEntry* find_own_entry(const void* owner) {
  const MutexLock lock(lists_mutex);
  for (ThreadExitEntry* entry = thread_list; entry != nullptr; entry = entry->next) {
    if (entry->owner == owner) return entry;
  }
  return nullptr;
}

}  // namespace gpupool::internal
