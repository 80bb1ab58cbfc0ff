// SIGHUP as something that can be asked for: while one of these lives, and only then, the process's
// disposition of it is ours. What it was before is put back, unless somebody has set another one
// since.
//
// Any number of them share one handler: the first puts it there, and the last puts back what was
// there before.
//
// Thread safety: take() from one thread, all else from any. Cost: a load. The handler does one
// atomic store.
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
  std::uint32_t seen_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HANG_UP_SIGNAL_H_
