// The names of the public enums, as logs and metric labels show them.
#include "gpupool/failure_report.h"
#include "gpupool/observer.h"
#include "gpupool/options.h"
#include "gpupool/pool.h"
#include "gpupool/record.h"
#include "gpupool/stats.h"
#include "gpupool/status.h"

namespace gpupool {

// Every switch lists each enumerator, so that the compiler warns of a new one without a name; a
// value outside the enum is named "unknown".

const char* to_string(Error error) noexcept {
  switch (error) {
    case Error::out_of_memory: return "out_of_memory";
    case Error::limit_exceeded: return "limit_exceeded";
    case Error::invalid_argument: return "invalid_argument";
    case Error::backend_failure: return "backend_failure";
    case Error::not_supported: return "not_supported";
  }
  return "unknown";
}

const char* to_string(MissReason value) noexcept {
  switch (value) {
    case MissReason::size: return "size";
    case MissReason::budget: return "budget";
    case MissReason::pending: return "pending";
    case MissReason::fragmented: return "fragmented";
    case MissReason::cold: return "cold";
    case MissReason::invalid: return "invalid";
    case MissReason::driver: return "driver";
  }
  return "unknown";
}

const char* to_string(FailureCause value) noexcept {
  switch (value) {
    case FailureCause::memory: return "memory";
    case FailureCause::size: return "size";
    case FailureCause::alignment: return "alignment";
    case FailureCause::stream: return "stream";
    case FailureCause::private_pool: return "private_pool";
    case FailureCause::capture: return "capture";
    case FailureCause::handle: return "handle";
    case FailureCause::guard: return "guard";
    case FailureCause::event: return "event";
    case FailureCause::driver: return "driver";
  }
  return "unknown";
}

const char* to_string(FallbackReason value) noexcept {
  switch (value) {
    case FallbackReason::contiguous: return "contiguous";
    case FallbackReason::arena_failed: return "arena_failed";
    case FallbackReason::address_space: return "address_space";
    case FallbackReason::alignment: return "alignment";
  }
  return "unknown";
}

const char* to_string(ReleaseReason value) noexcept {
  switch (value) {
    case ReleaseReason::trim: return "trim";
    case ReleaseReason::rollback: return "rollback";
    case ReleaseReason::fallback: return "fallback";
    case ReleaseReason::retry: return "retry";
  }
  return "unknown";
}

const char* to_string(TrimReason value) noexcept {
  switch (value) {
    case TrimReason::api: return "api";
    case TrimReason::idle: return "idle";
    case TrimReason::pressure: return "pressure";
    case TrimReason::out_of_memory: return "out_of_memory";
    case TrimReason::recycle: return "recycle";
  }
  return "unknown";
}

const char* to_string(Tier value) noexcept {
  switch (value) {
    case Tier::cache: return "cache";
    case Tier::size_class: return "size_class";
    case Tier::buddy: return "buddy";
    case Tier::run: return "run";
  }
  return "unknown";
}

const char* to_string(DriverOperation value) noexcept {
  switch (value) {
    case DriverOperation::create: return "create";
    case DriverOperation::map: return "map";
    case DriverOperation::set_access: return "set_access";
    case DriverOperation::unmap: return "unmap";
    case DriverOperation::release: return "release";
    case DriverOperation::allocate: return "allocate";
    case DriverOperation::deallocate: return "deallocate";
  }
  return "unknown";
}

const char* to_string(Misuse value) noexcept {
  switch (value) {
    case Misuse::double_free: return "double_free";
    case Misuse::foreign_pointer: return "foreign_pointer";
    case Misuse::interior_pointer: return "interior_pointer";
    case Misuse::wrong_device: return "wrong_device";
    case Misuse::wrong_size: return "wrong_size";
    case Misuse::unknown_stream: return "unknown_stream";
    case Misuse::leak: return "leak";
    case Misuse::canary: return "canary";
  }
  return "unknown";
}

const char* to_string(LadderRung value) noexcept {
  switch (value) {
    case LadderRung::caches: return "caches";
    case LadderRung::events: return "events";
    case LadderRung::other_streams: return "other_streams";
    case LadderRung::recycle: return "recycle";
    case LadderRung::grow: return "grow";
    case LadderRung::trim: return "trim";
    case LadderRung::wait: return "wait";
    case LadderRung::callback: return "callback";
  }
  return "unknown";
}

const char* to_string(LimitKind value) noexcept {
  switch (value) {
    case LimitKind::capacity_bytes: return "capacity_bytes";
    case LimitKind::capacity_fraction: return "capacity_fraction";
    case LimitKind::device: return "device";
  }
  return "unknown";
}

const char* to_string(CrossStreamReuse value) noexcept {
  switch (value) {
    case CrossStreamReuse::completed: return "completed";
    case CrossStreamReuse::waited: return "waited";
    case CrossStreamReuse::dependency: return "dependency";
  }
  return "unknown";
}

const char* to_string(Backing value) noexcept {
  switch (value) {
    case Backing::vmm: return "vmm";
    case Backing::cudamalloc: return "cudamalloc";
  }
  return "unknown";
}

const char* to_string(ContiguousBacking value) noexcept {
  switch (value) {
    case ContiguousBacking::cudamalloc: return "cudamalloc";
    case ContiguousBacking::handle: return "handle";
  }
  return "unknown";
}

const char* to_string(Recycling value) noexcept {
  switch (value) {
    case Recycling::off: return "off";
    case Recycling::pressure: return "pressure";
    case Recycling::eager: return "eager";
  }
  return "unknown";
}

const char* to_string(AliasReuse value) noexcept {
  switch (value) {
    case AliasReuse::wait: return "wait";
    case AliasReuse::same_stream: return "same_stream";
  }
  return "unknown";
}

const char* to_string(CrossStreamPolicy value) noexcept {
  switch (value) {
    case CrossStreamPolicy::never: return "never";
    case CrossStreamPolicy::when_done: return "when_done";
    case CrossStreamPolicy::wait: return "wait";
  }
  return "unknown";
}

const char* to_string(OnMisuse value) noexcept {
  switch (value) {
    case OnMisuse::report: return "report";
    case OnMisuse::abort: return "abort";
  }
  return "unknown";
}

const char* to_string(RecordEnd value) noexcept {
  switch (value) {
    case RecordEnd::stopped: return "stopped";
    case RecordEnd::file_full: return "file_full";
    case RecordEnd::buffer_full: return "buffer_full";
  }
  return "unknown";
}

const char* to_string(SlowPathEventKind value) noexcept {
  switch (value) {
    case SlowPathEventKind::driver_call: return "driver_call";
    case SlowPathEventKind::growth: return "growth";
    case SlowPathEventKind::miss: return "miss";
    case SlowPathEventKind::failure: return "failure";
    case SlowPathEventKind::fallback: return "fallback";
    case SlowPathEventKind::trim: return "trim";
    case SlowPathEventKind::cache_drain: return "cache_drain";
    case SlowPathEventKind::epoch_closed: return "epoch_closed";
    case SlowPathEventKind::reconfigured: return "reconfigured";
    case SlowPathEventKind::misuse: return "misuse";
  }
  return "unknown";
}

const char* to_string(Fit value) noexcept {
  switch (value) {
    case Fit::now: return "now";
    case Fit::by_growth: return "by_growth";
    case Fit::after_pending: return "after_pending";
    case Fit::no: return "no";
  }
  return "unknown";
}

const char* to_string(BlockState value) noexcept {
  switch (value) {
    case BlockState::live: return "live";
    case BlockState::cached: return "cached";
    case BlockState::pending: return "pending";
    case BlockState::free: return "free";
  }
  return "unknown";
}

}  // namespace gpupool
