#include "backend/simulated_notes.h"

#include <iterator>

#include "backend/simulated_violations.h"

namespace gpupool::internal {

void SimulatedNotes::refuse_unless(bool is_right, const char* what, DeviceAddress address) {
  if (!is_right) on_violation_(std::string(what) + " " + as_hex(address));
}

void SimulatedNotes::add_heap(DeviceAddress address, std::size_t bytes) {
  bool is_new = false;
  {
    const MutexLock lock(mutex_);
    is_new = heaps_.emplace(address, bytes).second;
  }
  refuse_unless(is_new, "a heap that is registered already:", address);
}

void SimulatedNotes::remove_heap(DeviceAddress address) {
  bool was_there = false;
  {
    const MutexLock lock(mutex_);
    was_there = heaps_.erase(address) == 1;
  }
  refuse_unless(was_there, "no heap is registered at", address);
}

void SimulatedNotes::add_block(DeviceAddress address, std::size_t bytes) {
  bool is_right = false;
  {
    const MutexLock lock(mutex_);
    const auto heap = heaps_.upper_bound(address);
    const bool is_inside = heap != heaps_.begin() &&
                           address + bytes <= std::prev(heap)->first + std::prev(heap)->second;
    is_right = is_inside && blocks_.emplace(address, bytes).second;
  }
  refuse_unless(is_right, "a block in no heap, or registered already:", address);
}

void SimulatedNotes::remove_block(DeviceAddress address) {
  bool was_there = false;
  {
    const MutexLock lock(mutex_);
    was_there = blocks_.erase(address) == 1;
  }
  refuse_unless(was_there, "no block is registered at", address);
}

std::uint64_t SimulatedNotes::heap_count() const {
  const MutexLock lock(mutex_);
  return heaps_.size();
}

std::uint64_t SimulatedNotes::block_count() const {
  const MutexLock lock(mutex_);
  return blocks_.size();
}

std::uint64_t SimulatedNotes::block_bytes(DeviceAddress address) const {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(address);
  return found == blocks_.end() ? 0 : found->second;
}

}  // namespace gpupool::internal
