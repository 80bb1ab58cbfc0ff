// Tells an owner when a thread that it watches ends, while that thread still runs: what only the
// thread itself can do for its streams is done then.
//
// The main thread is not watched: its end is the process's, when no driver call may be made.
//
// Thread safety: all methods from any thread. After close() (or the destructor) no call is made any
// more, nor is one still running. Cost: watch() one entry a call; nothing until the thread ends.
#ifndef GPUPOOL_BASE_THREAD_EXITS_H_
#define GPUPOOL_BASE_THREAD_EXITS_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace gpupool::internal {

class ThreadExits {
 public:
  /// `on_exit` gets the key that the thread was watched with.
  explicit ThreadExits(std::function<void(std::uint64_t key)> on_exit);
  ~ThreadExits() { close(); }
  ThreadExits(const ThreadExits&) = delete;
  ThreadExits& operator=(const ThreadExits&) = delete;

  /// Watches the calling thread. Call once for each key.
  void watch(std::uint64_t key);
  /// Requires: the caller holds nothing that `on_exit` waits for.
  void close();

  /// What outlives the owner, shared with the threads; defined in the source file.
  struct Anchor;

 private:
  std::shared_ptr<Anchor> anchor_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_THREAD_EXITS_H_
