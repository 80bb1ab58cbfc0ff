// From the address of a block to what a system knows of it: a hash table with open addressing,
// linear probing, and deletion by moving back what follows (Knuth, TAOCP 3, 6.4, Algorithms L, R).
//
// Invariants: at most half of the places are taken; from the place that an address hashes to up to
// where it stands, no place is empty. Address 0 is never a key.
// Thread safety: none. Cost: about one cache line a call; doubles now and then.
#ifndef GPUPOOL_BENCH_BASELINES_ADDRESS_MAP_H_
#define GPUPOOL_BENCH_BASELINES_ADDRESS_MAP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpupool/backend.h"

namespace gpupool::baselines {

template <class T>
class AddressMap {
 public:
  std::size_t size() const { return size_; }
  /// Calls `visitor(address, value)` for each, in no order.
  template <class Visitor>
  void visit(const Visitor& visitor) const {
    for (const Place& place : places_) {
      if (place.value != nullptr) visitor(place.address, *place.value);
    }
  }

  /// nullptr where there is none.
  T* find(DeviceAddress address) const { return places_[place_of(address)].value; }

  /// Requires: `address` is not there yet; `value` is not null.
  void insert(DeviceAddress address, T* value) {
    if (2 * (size_ + 1) > places_.size()) grow();
    places_[place_of(address)] = {address, value};
    ++size_;
  }

  /// Requires: `address` is there.
  void erase(DeviceAddress address) {
    std::size_t hole = place_of(address);
    for (std::size_t i = next(hole); places_[i].value != nullptr; i = next(i)) {
      // Moves back unless that would put it before the place where its search begins.
      const std::size_t home = home_of(places_[i].address);
      if (((i - home) & mask()) < ((i - hole) & mask())) continue;
      places_[hole] = places_[i];
      hole = i;
    }
    places_[hole] = {};
    --size_;
  }

 private:
  struct Place {
    DeviceAddress address = 0;
    T* value = nullptr;
  };

  std::size_t mask() const { return places_.size() - 1; }
  std::size_t next(std::size_t place) const { return (place + 1) & mask(); }
  std::size_t home_of(DeviceAddress address) const {
    // Fibonacci hashing: addresses differ in their middle bits, the product's high bits are used.
    return static_cast<std::size_t>((address * 0x9e3779b97f4a7c15U) >> 32) & mask();
  }
  /// Where `address` stands, or the empty place at which its search ends.
  std::size_t place_of(DeviceAddress address) const {
    std::size_t place = home_of(address);
    while (places_[place].value != nullptr && places_[place].address != address) {
      place = next(place);
    }
    return place;
  }
  void grow() {
    std::vector<Place> old(2 * places_.size());
    old.swap(places_);
    for (const Place& place : old) {
      if (place.value != nullptr) places_[place_of(place.address)] = place;
    }
  }

  std::vector<Place> places_ = std::vector<Place>(1024);
  std::size_t size_ = 0;
};

}  // namespace gpupool::baselines

#endif  // GPUPOOL_BENCH_BASELINES_ADDRESS_MAP_H_
