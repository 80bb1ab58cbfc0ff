// What is there for whichever thread comes first.
//
// Thread safety: all methods from any thread.
#ifndef GPUPOOL_TESTS_SUPPORT_BASKET_H_
#define GPUPOOL_TESTS_SUPPORT_BASKET_H_

#include <deque>
#include <mutex>

namespace gpupool {

template <class T>
class Basket {
 public:
  void put(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(item);
  }
  /// The first that was put in; false: none.
  bool take(T& item) {
    const std::lock_guard lock(mutex_);
    if (items_.empty()) return false;
    item = items_.front();
    items_.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::deque<T> items_;
};

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_SUPPORT_BASKET_H_
