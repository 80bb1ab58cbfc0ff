// SIGHUP as something that can be asked for: while one of these lives, and only then, the process's
// disposition of it is ours. What it was before is put back, unless somebody has set another one
// since.
//
// Thread safety: take() from one thread; made and destroyed from one thread at a time. Cost: a
// load. The handler does one atomic store.
#ifndef GPUPOOL_EXPORTER_HANG_UP_SIGNAL_H_
#define GPUPOOL_EXPORTER_HANG_UP_SIGNAL_H_

#include <signal.h>

#include <cstdint>

namespace gpupool::internal {

class HangUpSignal {
 public:
  HangUpSignal();
  ~HangUpSignal();
  HangUpSignal(const HangUpSignal&) = delete;
  HangUpSignal& operator=(const HangUpSignal&) = delete;

  /// Whether the signal has come since this was last asked.
  bool take() noexcept;

 private:
  struct sigaction before_ {};
  std::uint32_t seen_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HANG_UP_SIGNAL_H_
