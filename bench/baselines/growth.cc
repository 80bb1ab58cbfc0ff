#include "bench/baselines/growth.h"

namespace gpupool::baselines {
namespace {

Result<Segment> ask(Backend& backend, std::uint64_t bytes) {
  const Result<DeviceAddress> address = backend.allocate(bytes);
  if (!address.ok()) return address.error();
  return Segment{address.value(), bytes};
}

bool is_settled(const Result<Segment>& segment) {
  return segment.ok() || segment.error() != Error::out_of_memory;
}

}  // namespace

Result<Segment> grow(Backend& backend, std::uint64_t wanted_bytes, std::uint64_t needed_bytes,
                     const std::function<bool()>& give_back) {
  Result<Segment> segment = ask(backend, wanted_bytes);
  if (is_settled(segment)) return segment;
  if (needed_bytes < wanted_bytes) segment = ask(backend, needed_bytes);
  if (is_settled(segment) || !give_back()) return segment;
  return ask(backend, needed_bytes);
}

}  // namespace gpupool::baselines
