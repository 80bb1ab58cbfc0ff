#include "pool/fallbacks.h"

#include <iterator>
#include <utility>

namespace gpupool::internal {
namespace {

// A record's state is atomic, so that a Fallback is no plain value.
void copy(const Fallback& from, Fallback& to) {
  to.address = from.address;
  to.allocation = from.allocation;
  to.bytes = from.bytes;
  to.handle = from.handle;
  to.has_own_addresses = from.has_own_addresses;
  to.is_mapped = from.is_mapped;
  to.tickets = from.tickets;
  to.is_pending = from.is_pending;
}

}  // namespace

Fallback& Fallbacks::add(const Fallback& own) {
  Fallback& fallback = by_address_[own.address];
  copy(own, fallback);
  bytes_ += own.bytes;
  return fallback;
}

const Fallback* Fallbacks::find(DeviceAddress address) const {
  auto after = by_address_.upper_bound(address);
  if (after == by_address_.begin()) return nullptr;
  const Fallback& fallback = std::prev(after)->second;
  return address < fallback.allocation + fallback.bytes ? &fallback : nullptr;
}

Fallback* Fallbacks::find(DeviceAddress address) {
  return const_cast<Fallback*>(std::as_const(*this).find(address));
}

void Fallbacks::retire(Fallback& fallback, const TicketSet& tickets) {
  fallback.tickets = tickets;
  fallback.is_pending = true;
  pending_bytes_ += fallback.bytes;
  ++pending_count_;
}

bool Fallbacks::take_complete(const StreamTable& streams, Fallback& out) {
  if (pending_count_ == 0) return false;
  for (auto it = by_address_.begin(); it != by_address_.end(); ++it) {
    Fallback& fallback = it->second;
    if (!fallback.is_pending) continue;
    fallback.tickets.prune(streams);
    if (!fallback.tickets.empty()) continue;
    copy(fallback, out);
    bytes_ -= fallback.bytes;
    pending_bytes_ -= fallback.bytes;
    --pending_count_;
    by_address_.erase(it);
    return true;
  }
  return false;
}

bool Fallbacks::take_any(Fallback& out) {
  if (by_address_.empty()) return false;
  const Fallback& fallback = by_address_.begin()->second;
  copy(fallback, out);
  bytes_ -= fallback.bytes;
  if (fallback.is_pending) {
    pending_bytes_ -= fallback.bytes;
    --pending_count_;
  }
  by_address_.erase(by_address_.begin());
  return true;
}

void Fallbacks::put_back(const Fallback& fallback) {
  Fallback& again = add(fallback);
  retire(again, fallback.tickets);
}

}  // namespace gpupool::internal
