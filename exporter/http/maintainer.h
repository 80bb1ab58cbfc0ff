// A thread that does one step of upkeep each period, and ends at once when told to.
//
// Thread safety: one owner. Cost: one thread, asleep but for its steps. A forked child does not
// have the thread: the owner must not destroy a Maintainer there.
#ifndef GPUPOOL_EXPORTER_HTTP_MAINTAINER_H_
#define GPUPOOL_EXPORTER_HTTP_MAINTAINER_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

namespace gpupool::internal {

class Maintainer {
 public:
  /// `step` must not throw.
  Maintainer(std::chrono::milliseconds period, std::function<void()> step);

 private:
  void run(const std::stop_token& stop, std::chrono::milliseconds period);

  std::function<void()> step_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it uses the others until it is joined
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_MAINTAINER_H_
