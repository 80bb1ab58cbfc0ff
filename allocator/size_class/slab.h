// Tier T1: a slab, equal slots of one size class in consecutive units of a chunk.
//
// A slot is taken (live or in a cache), free, or foreign: freed by a stream that does not own the
// chunk, and so out of reach until that stream's work is complete.
//
//   slot_count = taken + free + foreign;   the lowest free slot is given first
//
// Thread safety: under the pool's lock. Cost: a few bit operations.
#ifndef GPUPOOL_SIZE_CLASS_SLAB_H_
#define GPUPOOL_SIZE_CLASS_SLAB_H_

#include <array>
#include <bit>
#include <cstdint>

#include "base/check.h"
#include "size_class/size_class.h"

namespace gpupool::internal {

using SlabId = std::uint32_t;  // chunk * 2 + half; 0: none, since chunk 0 is never used

class alignas(64) Slab {
 public:
  static constexpr std::size_t kMaxSlots = 256;

  bool is_active() const noexcept { return active_; }
  SizeClass size_class() const noexcept { return class_; }
  const SizeClassInfo& info() const noexcept { return kSizeClasses[class_]; }
  std::uint32_t first_unit() const noexcept { return first_unit_; }  // within the chunk
  std::uint32_t taken() const noexcept { return taken_; }
  bool has_free() const noexcept { return free_count_ > 0; }
  bool has_foreign() const noexcept { return taken_ + free_count_ < info().slot_count; }
  std::uint64_t free_bytes() const noexcept {
    return std::uint64_t{info().slot_count - taken_} * info().slot_bytes;
  }
  std::uint64_t tail_bytes() const noexcept {
    return info().slab_units * kUnitBytes - std::uint64_t{info().slot_count} * info().slot_bytes;
  }
  /// Quarter of the slots that is taken: 0 to 3, full slabs with 3.
  std::uint32_t fullness() const noexcept { return info().quarter_of(taken_); }

  void start(SizeClass size_class, std::uint32_t first_unit) {
    active_ = true;
    class_ = size_class;
    first_unit_ = static_cast<std::uint8_t>(first_unit);
    taken_ = 0;
    free_count_ = static_cast<std::uint16_t>(info().slot_count);
    foreign_ = {};
    for (std::uint32_t i = 0; i < free_.size(); ++i) {
      const std::uint32_t left = info().slot_count > i * 64 ? info().slot_count - i * 64 : 0;
      free_[i] = left >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
    }
  }
  void end() { active_ = false; }

  /// The lowest free slot. Requires: has_free().
  std::uint32_t take() {
    std::uint32_t word = 0;
    while (free_[word] == 0) ++word;
    const auto bit = static_cast<std::uint32_t>(std::countr_zero(free_[word]));
    free_[word] &= free_[word] - 1;
    --free_count_;
    ++taken_;
    return word * 64 + bit;
  }

  void put(std::uint32_t slot, bool is_foreign) {
    const std::uint64_t bit = std::uint64_t{1} << slot % 64;
    // The foreign slots lie in a cache line of their own, and hardly ever are there any.
    GPUPOOL_CHECK((free_[slot / 64] & bit) == 0 &&
                  (!has_foreign() || (foreign_[slot / 64] & bit) == 0));
    --taken_;
    if (is_foreign) {
      foreign_[slot / 64] |= bit;
    } else {
      free_[slot / 64] |= bit;
      ++free_count_;
    }
  }

  /// The work on foreign slots is complete: they are free.
  void free_foreign() {
    for (std::size_t i = 0; i < free_.size(); ++i) {
      free_count_ = static_cast<std::uint16_t>(free_count_ + std::popcount(foreign_[i]));
      free_[i] |= foreign_[i];
      foreign_[i] = 0;
    }
  }

  bool is_taken(std::uint32_t slot) const noexcept {
    const std::uint64_t bit = std::uint64_t{1} << slot % 64;
    return slot < info().slot_count && ((free_[slot / 64] | foreign_[slot / 64]) & bit) == 0;
  }

  void check_invariants() const {
    std::uint32_t free_bits = 0;
    std::uint32_t foreign_bits = 0;
    for (std::size_t i = 0; i < free_.size(); ++i) {
      GPUPOOL_CHECK((free_[i] & foreign_[i]) == 0);
      free_bits += static_cast<std::uint32_t>(std::popcount(free_[i]));
      foreign_bits += static_cast<std::uint32_t>(std::popcount(foreign_[i]));
    }
    GPUPOOL_CHECK(free_bits == free_count_);
    GPUPOOL_CHECK(taken_ + free_bits + foreign_bits == info().slot_count);
  }

  // Neighbours in the list of slabs of the same stream, class and fullness; kept by SharedTiers.
  SlabId previous = 0;
  SlabId next = 0;
  bool is_listed = false;
  std::uint8_t listed_fullness = 0;

 private:
  bool active_ = false;
  SizeClass class_ = 0;
  std::uint8_t first_unit_ = 0;
  std::uint16_t taken_ = 0;
  std::uint16_t free_count_ = 0;
  std::array<std::uint64_t, kMaxSlots / 64> free_{};
  std::array<std::uint64_t, kMaxSlots / 64> foreign_{};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_SIZE_CLASS_SLAB_H_
