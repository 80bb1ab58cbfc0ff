#include "bench/baselines/driver_only.h"

#include "bench/baselines/growth.h"

namespace gpupool::baselines {

Result<void*> DriverOnly::allocate(std::uint64_t bytes, StreamIndex) {
  if (bytes == 0) return nullptr;
  const Result<DeviceAddress> address = backend_.allocate(bytes);
  if (!address.ok()) return address.error();
  return to_pointer(address.value());
}

bool DriverOnly::deallocate(void* pointer, StreamIndex) {
  return pointer == nullptr || backend_.deallocate(to_address(pointer)).ok();
}

}  // namespace gpupool::baselines
