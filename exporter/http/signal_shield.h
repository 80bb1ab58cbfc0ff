// Keeps a thread's signals away from threads that are started meanwhile: they inherit a mask that
// blocks everything, so that the program's handlers never run on them.
//
// Thread safety: construct and destroy on one thread. Cost: two system calls.
#ifndef GPUPOOL_EXPORTER_HTTP_SIGNAL_SHIELD_H_
#define GPUPOOL_EXPORTER_HTTP_SIGNAL_SHIELD_H_

#include <signal.h>

namespace gpupool::internal {

class SignalShield {
 public:
  SignalShield() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalShield() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalShield(const SignalShield&) = delete;
  SignalShield& operator=(const SignalShield&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_SIGNAL_SHIELD_H_
