// What takes long to stop, or is not to be stopped, and yet is no leak: it is still to be reached.
#ifndef GPUPOOL_TESTS_SUPPORT_KEPT_H_
#define GPUPOOL_TESTS_SUPPORT_KEPT_H_

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace gpupool::testing_support {

/// Lives until the process ends, and is not destroyed then.
template <class T>
T& keep(std::unique_ptr<T> owned) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<T>>();
  std::lock_guard lock(mutex);
  return *kept->emplace_back(std::move(owned));
}

}  // namespace gpupool::testing_support

#endif  // GPUPOOL_TESTS_SUPPORT_KEPT_H_
