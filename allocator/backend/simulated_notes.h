// The blocks that the simulated device was told of, as a tool would keep them; what no tool would
// put up with is a violation: a block that is there already or not at all, or in no heap.
//
// Thread safety: any thread, by a lock of its own. Cost: a search in a tree.
#ifndef GPUPOOL_BACKEND_SIMULATED_NOTES_H_
#define GPUPOOL_BACKEND_SIMULATED_NOTES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/mutex.h"
#include "gpupool/backend.h"

namespace gpupool::internal {

class SimulatedNotes final : public BlockNotes {
 public:
  explicit SimulatedNotes(std::function<void(const std::string&)> on_violation)
      : on_violation_(std::move(on_violation)) {}

  void add_heap(DeviceAddress address, std::size_t bytes) override;
  void remove_heap(DeviceAddress address) override;
  void add_block(DeviceAddress address, std::size_t bytes) override;
  void remove_block(DeviceAddress address) override;

  std::uint64_t heap_count() const GPUPOOL_EXCLUDES(mutex_);
  std::uint64_t block_count() const GPUPOOL_EXCLUDES(mutex_);
  std::uint64_t block_bytes(DeviceAddress address) const GPUPOOL_EXCLUDES(mutex_);

 private:
  using Ranges = std::map<DeviceAddress, std::uint64_t>;  // -> bytes

  void refuse_unless(bool is_right, const char* what, DeviceAddress address);

  const std::function<void(const std::string&)> on_violation_;
  mutable Mutex mutex_;
  Ranges heaps_ GPUPOOL_GUARDED_BY(mutex_);
  Ranges blocks_ GPUPOOL_GUARDED_BY(mutex_);
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_SIMULATED_NOTES_H_
