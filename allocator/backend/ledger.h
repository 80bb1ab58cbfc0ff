// What is held through a CUDA backend: the driver does not say, and calls on what it does not know
// are undefined there, so that the backend asks this first.
//
//   held_bytes = bytes of handles (each until it is released AND nowhere mapped)
//              + bytes of plain allocations.
//
// A call that takes something away is entered before the driver is asked (take_*), and then either
// finished or, where the driver refused, restored: once the driver has taken it, it may give the
// same handle or address to another thread at once. It counts as held until finished.
//
// Thread safety: all methods may be called from any thread. Cost: one lock and a search in a tree
// of mappings.
#ifndef GPUPOOL_BACKEND_LEDGER_H_
#define GPUPOOL_BACKEND_LEDGER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "gpupool/backend.h"

namespace gpupool::internal {

class Ledger {
 public:
  /// A handle that is being released.
  struct Release {
    PhysicalHandle handle;
    std::uint64_t id = 0;
  };
  struct Mapping {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t id = 0;  // of the handle, which the driver may give again after its release
  };

  std::uint64_t held_bytes() const noexcept { return held_bytes_.load(std::memory_order_relaxed); }

  void add_handle(PhysicalHandle handle, std::uint64_t bytes) GPUPOOL_EXCLUDES(mutex_);
  std::optional<Release> take_handle(PhysicalHandle handle) GPUPOOL_EXCLUDES(mutex_);
  void restore(const Release& release) GPUPOOL_EXCLUDES(mutex_);
  void finish(const Release& release) GPUPOOL_EXCLUDES(mutex_);

  /// Enters a mapping, before the driver is asked: finish(take_mappings()) where that refuses.
  /// False where the handle is not of this size, or a mapping is in the way.
  bool add_mapping(DeviceAddress address, std::uint64_t bytes, PhysicalHandle handle)
      GPUPOOL_EXCLUDES(mutex_);
  /// Whether whole mappings cover the range without a hole.
  bool is_mapped(DeviceAddress address, std::uint64_t bytes) const GPUPOOL_EXCLUDES(mutex_);
  /// The mappings that cover the range; empty where they do not cover exactly that.
  std::vector<Mapping> take_mappings(DeviceAddress address, std::uint64_t bytes)
      GPUPOOL_EXCLUDES(mutex_);
  void restore(const std::vector<Mapping>& mappings) GPUPOOL_EXCLUDES(mutex_);
  void finish(const std::vector<Mapping>& mappings) GPUPOOL_EXCLUDES(mutex_);
  bool has_mappings(DeviceAddress address, std::uint64_t bytes) const GPUPOOL_EXCLUDES(mutex_);

  void add_plain(DeviceAddress address, std::uint64_t bytes) GPUPOOL_EXCLUDES(mutex_);
  /// Bytes of the plain allocation, which counts as held until finish_plain.
  std::optional<std::uint64_t> take_plain(DeviceAddress address) GPUPOOL_EXCLUDES(mutex_);
  void restore_plain(DeviceAddress address, std::uint64_t bytes) GPUPOOL_EXCLUDES(mutex_);
  void finish_plain(std::uint64_t bytes) noexcept;

 private:
  struct Physical {
    std::uint64_t bytes = 0;
    std::uint64_t mapping_count = 0;
    bool is_released = false;
  };
  using Mappings = std::map<DeviceAddress, Mapping>;

  Mappings::const_iterator find_whole(DeviceAddress address, std::uint64_t bytes) const
      GPUPOOL_REQUIRES(mutex_);
  bool overlaps(DeviceAddress address, std::uint64_t bytes) const GPUPOOL_REQUIRES(mutex_);
  void drop_if_unused(std::uint64_t id) GPUPOOL_REQUIRES(mutex_);

  std::atomic<std::uint64_t> held_bytes_{0};
  mutable Mutex mutex_;
  std::uint64_t last_id_ GPUPOOL_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> handles_ GPUPOOL_GUARDED_BY(mutex_);  // -> id
  std::unordered_map<std::uint64_t, Physical> physical_ GPUPOOL_GUARDED_BY(mutex_);      // by id
  Mappings mappings_ GPUPOOL_GUARDED_BY(mutex_);
  std::unordered_map<DeviceAddress, std::uint64_t> plain_ GPUPOOL_GUARDED_BY(mutex_);
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_LEDGER_H_
