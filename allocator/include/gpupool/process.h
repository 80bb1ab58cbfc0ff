// Whether this is still the process that made something, and whether it still runs: a forked child
// has the memory of its parent but neither its driver nor its threads, and may find any lock held;
// and once a process has begun to exit, the driver may be gone before what uses it.
//
// A fork is known in the child from its first instruction. Exiting is known as soon as the main
// thread's own objects are destroyed, or the handlers of atexit() run that were registered after
// watch_process() was last called, whichever is first: that is, before static objects are destroyed
// that were made before that call.
//
// Thread safety: all functions from any thread. Cost: process_epoch() is a load.
#ifndef GPUPOOL_PROCESS_H_
#define GPUPOOL_PROCESS_H_

#include <cstdint>

namespace gpupool {

enum class ProcessState : std::uint8_t {
  same,
  forked,   // a child of the process that it was
  exiting,  // its static objects are being destroyed
};

/// A number that changes whenever the state may have.
std::uint32_t process_epoch() noexcept;
/// What has become of the process since process_epoch() gave `epoch`.
ProcessState process_state_since(std::uint32_t epoch) noexcept;
/// From now on forks are noticed, and exits that the calling thread makes.
void watch_process() noexcept;
/// `handler` runs in each forked child, where it may do what a signal handler may. False where the
/// host has no memory for it.
bool run_in_forked_children(void (*handler)()) noexcept;

}  // namespace gpupool

#endif  // GPUPOOL_PROCESS_H_
