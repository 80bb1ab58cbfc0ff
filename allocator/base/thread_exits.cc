#include "base/thread_exits.h"

#include <pthread.h>

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

void on_thread_exit(void*) {
  hot_slot = HotSlot{.is_ending = true};
  const MutexLock lock(lists_mutex);
  while (ThreadExitEntry* entry = thread_list) {
    unlink(*entry);
    // Under the lock, so that the owner does not go meanwhile.
    entry->on_exit(entry->owner, entry->context);
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

ThreadExitEntry* find_own_entry(const void* owner) {
  const MutexLock lock(lists_mutex);
  for (ThreadExitEntry* entry = thread_list; entry != nullptr; entry = entry->next) {
    if (entry->owner == owner) return entry;
  }
  return nullptr;
}

}  // namespace gpupool::internal
