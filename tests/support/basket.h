// What is there for whichever thread comes first.
//
// Thread safety: all methods from any thread.
#ifndef GPUPOOL_TESTS_SUPPORT_BASKET_H_
#define GPUPOOL_TESTS_SUPPORT_BASKET_H_

#include <mutex>
#include <vector>

namespace gpupool {

template <class T>
class Basket {
 public:
  void put(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(item);
  }
  /// The last that was put in; false: none.
  bool take(T& item) {
    const std::lock_guard lock(mutex_);
    if (items_.empty()) return false;
    item = items_.back();
    items_.pop_back();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<T> items_;
};

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_SUPPORT_BASKET_H_
