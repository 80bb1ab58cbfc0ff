// Blocks for callers that name no stream.
//
// They follow the legacy default stream. A block that it gets is free of everybody else's work, or
// that stream has been made to wait for it (CrossStreamPolicy); what is left is work of its own,
// and of streams that it waits for. One event after all that, waited for here, is enough.
#include "pool/pool_impl.h"

namespace gpupool {
namespace {

constexpr RawStream kLegacy = nullptr;

/// Waits for all that the legacy stream was given.
Result<void> synchronize_legacy(Backend& backend) {
  const auto capture = backend.capture_state(kLegacy);
  if (!capture.ok()) return capture.error();
  // An event would invalidate that capture.
  if (capture.value() != CaptureState::none) return Error::not_supported;
  const auto event = backend.create_event();
  if (!event.ok()) return event.error();
  auto result = backend.record_event(event.value(), kLegacy);
  if (result.ok()) result = backend.synchronize_event(event.value());
  // An event that the driver keeps is lost to us, and that is all.
  static_cast<void>(backend.destroy_event(event.value()).ok());
  return result;
}

}  // namespace

Result<void*> Pool::allocate_for_any_stream(const AllocationRequest& request) {
  const auto block = allocate_raw(request, kLegacy);
  if (!block.ok() || block.value() == nullptr) return block;
  if (const auto done = synchronize_legacy(impl_->driver_.backend()); !done.ok()) {
    static_cast<void>(deallocate_raw(block.value(), kNoSize, kLegacy));
    return done.error();
  }
  return block;
}

bool Pool::deallocate_unused(void* pointer, std::size_t bytes) {
  return deallocate_raw(pointer, bytes, kLegacy);
}

}  // namespace gpupool
