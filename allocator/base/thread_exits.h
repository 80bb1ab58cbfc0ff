// Tells an owner when a thread that it watches ends, while that thread still runs: what only the
// thread itself can do for its caches and streams is done then.
//
// The entries are the owner's, so that watching takes no memory from the heap: a thread may be seen
// for the first time when it frees. The process's main thread is told of by pthread_exit() alone:
// its end is otherwise the process's, when no driver call may be made.
//
// Thread safety: all functions from any thread, with no lock held that `on_exit` takes; one lock
// for all, which no allocation takes that a thread has made before. Cost: O(1), forget() included.
#ifndef GPUPOOL_BASE_THREAD_EXITS_H_
#define GPUPOOL_BASE_THREAD_EXITS_H_

namespace gpupool::internal {

/// A thread that somebody watches. Address-stable while watched.
struct ThreadExitEntry {
  void (*on_exit)(void* owner, void* context) = nullptr;
  void* owner = nullptr;
  void* context = nullptr;
  ThreadExitEntry* previous = nullptr;
  ThreadExitEntry* next = nullptr;
  ThreadExitEntry** list = nullptr;  // the thread's, in its own storage
};

/// Watches the calling thread with `entry`, whose first three fields are set. False: the thread is
/// ending already.
bool watch_thread(ThreadExitEntry& entry);
/// No call is begun for `entry` any more.
void forget_thread(ThreadExitEntry& entry);
/// Returns once no call of `owner` is running. Requires: all its entries are forgotten.
void wait_for_exits(const void* owner);
/// In a forked child: only the calling thread is left, and what was watched was the parent's.
void forget_all_threads();
/// The calling thread's entry of `owner`; nullptr if there is none.
ThreadExitEntry* find_own_entry(const void* owner);

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_THREAD_EXITS_H_
