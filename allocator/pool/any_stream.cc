// Blocks for callers that name no stream.
//
// They follow the legacy default stream. A block that it gets is free of everybody else's work, or
// that stream has been made to wait for it (CrossStreamPolicy); what is left is work of its own,
// and of streams that it waits for. One event after all that, waited for here, is enough.
//
// Such a request is never a hit: it waits for an event. What is known to fail without a block is
// asked for first, so that it fails like any other; of what can only fail afterwards, the driver's
// wait, the block goes back, and the request, which was counted as served, fails.
#include "pool/pool_impl.h"

namespace gpupool {

using internal::MutexLock;

namespace {

constexpr RawStream kLegacy = nullptr;

/// Waits for all that the legacy stream was given.
class LegacyWait {
 public:
  explicit LegacyWait(Backend& backend) : backend_(backend) {}
  ~LegacyWait() {
    // An event that the driver keeps is lost to us, and that is all.
    if (event_.has_value()) static_cast<void>(backend_.destroy_event(*event_).ok());
  }
  LegacyWait(const LegacyWait&) = delete;
  LegacyWait& operator=(const LegacyWait&) = delete;

  Result<void> prepare() {
    const auto capture = backend_.capture_state(kLegacy);
    if (!capture.ok()) return capture.error();
    // An event would invalidate that capture.
    if (capture.value() != CaptureState::none) return Error::not_supported;
    const auto event = backend_.create_event();
    if (!event.ok()) return event.error();
    event_ = event.value();
    return {};
  }
  /// Requires: prepare() has succeeded.
  Result<void> wait() {
    // One may have begun meanwhile.
    const auto capture = backend_.capture_state(kLegacy);
    if (!capture.ok()) return capture.error();
    if (capture.value() != CaptureState::none) return Error::not_supported;
    const auto recorded = backend_.record_event(*event_, kLegacy);
    return recorded.ok() ? backend_.synchronize_event(*event_) : recorded;
  }

 private:
  Backend& backend_;
  std::optional<EventHandle> event_;
};

internal::Fault fault_of(Error error) {
  const bool is_captured = error == Error::not_supported;
  return {is_captured ? FailureCause::capture : FailureCause::event, error};
}

}  // namespace

Result<void*> Pool::Impl::allocate_for_any_stream(const AllocationRequest& request) {
  if (request.bytes == 0) return nullptr;
  if (is_closed()) return Error::not_supported;
  LegacyWait legacy(driver_.backend());
  if (const auto ready = legacy.prepare(); !ready.ok()) {
    MutexLock lock(mu_);
    return fail(request, fault_of(ready.error()), nullptr);
  }
  const auto block = allocate_raw(request, kLegacy, true);
  if (!block.ok()) return block;
  const auto done = legacy.wait();
  if (done.ok()) return block;
  internal::StreamState* stream = find_or_adopt(kLegacy, nullptr);
  if (stream == nullptr) stream = find_own_stream(block.value(), kLegacy);
  internal::ThreadRecord* const record = own_record();
  const internal::Placement placement = place_free(stream, true);
  // The free and the failure in one step, so that no counter ever goes down.
  MutexLock lock(mu_);
  static_cast<void>(take_back(block.value(), kNoSize, stream, record, placement));
  return fail(report_of(request, fault_of(done.error()), nullptr, LadderLog()), true);
}

Result<void*> Pool::allocate_for_any_stream(const AllocationRequest& request) {
  return impl_->allocate_for_any_stream(request);
}

bool Pool::deallocate_unused(void* pointer, std::size_t bytes) {
  return deallocate_raw(pointer, bytes, kLegacy);
}

}  // namespace gpupool
