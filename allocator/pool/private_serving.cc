// Private pools as the pool's operations see them: what serves a call, how a block comes to be a
// private pool's, and how that ends.
#include "pool/private_serving.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/invalid.h"
#include "base/thread_serial.h"
#include "pool/closed_pool.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::invalid;
using internal::MutexLock;

namespace {

std::string to_text(CapturePoolId id) {
  return "{" + std::to_string(id.first) + ", " + std::to_string(id.second) + "}";
}

/// Of ids that a program may give.
Result<void, Status> find_fault(const char* call, CapturePoolId id) {
  if (id == CapturePoolId{}) return invalid(std::string(call) + ": {0, 0} names no private pool");
  if (id.first != kUnannounced) return {};
  return invalid(std::string(call) + ": " + to_text(id) +
                 " is reserved for captures that nobody announces");
}

}  // namespace

namespace internal {

// What serves a call.

Placement PrivateServing::place(const StreamState* stream, std::optional<CaptureState> capture,
                                CapturePoolId named) {
  Placement placement;
  // A released reference is refused as such; its handle may name nothing any more.
  if (stream == nullptr || stream->is_released()) return placement;
  Backend& backend = driver_.backend();
  const bool is_by_reference = !capture.has_value();
  if (is_by_reference) {
    const bool is_left_alone = private_pools_.is_in_use() && is_left_to_another(*stream);
    const auto state = backend.capture_state(stream->raw());
    capture = state.ok() ? state.value() : CaptureState::none;
    // In a capture it cannot be asked who it is, nor where another thread may begin one; the legacy
    // stream is who it is.
    if (capture == CaptureState::none && !is_left_alone && stream->raw() != nullptr) {
      const auto id = backend.stream_id(stream->raw());
      const bool is_same = id.ok() && id.value() == stream->id();
      // Where it is not verified, what the driver does not tell is as the owner says; and by the
      // handle of a thread's own stream another thread asks for its own.
      const bool is_told = id.ok() && stream->raw() != per_thread_stream();
      placement.is_same_stream = is_same || (!options_.verify_streams && !is_told);
    }
  }
  placement.is_capturing = is_captured(*capture);
  placement.pool = named;
  if (placement.is_same_stream && !placement.is_private()) find_route(*stream, placement);
  const bool is_unannounced = !placement.is_private() && placement.is_capturing;
  if (is_unannounced) {
    const auto id = backend.capture_id(stream->raw());
    // One that is invalidated has none: what is freed there is that stream's again.
    placement.pool =
        id.ok() ? unannounced_capture(id.value()) : CapturePoolId{kUnannounced, ~stream->id()};
  }
  if (!placement.is_same_stream || (is_unannounced && is_by_reference)) {
    MutexLock lock(mu_);
    if (streams_.is_known(stream)) streams_.note_mismatch();
  }
  return placement;
}

Placement PrivateServing::place_free(const StreamState* stream, bool is_by_handle) {
  // Without private pools a free is the stream's own, whatever that is at.
  const bool has_private = private_pools_.is_in_use();
  if (!has_private && (is_by_handle || !options_.verify_streams)) return Placement();
  if (!is_by_handle || stream == nullptr) return place(stream, std::nullopt, {});
  const auto state = driver_.backend().capture_state(stream->raw());
  return place(stream, state.ok() ? state.value() : CaptureState::none, {});
}

bool PrivateServing::is_left_to_another(const StreamState& stream) {
  MutexLock lock(mu_);
  return streams_.is_left_alone(stream);
}

void PrivateServing::find_route(const StreamState& stream, Placement& placement) {
  if (!private_pools_.is_in_use()) return;
  std::shared_ptr<const Routes> routes;
  {
    MutexLock lock(mu_);
    routes = private_pools_.routes();
  }
  for (auto filter = routes->filters.rbegin(); filter != routes->filters.rend(); ++filter) {
    if (!(*filter->takes)(stream.raw())) continue;
    placement.pool = filter->pool;
    return;
  }
  for (const Routes::Announced& announced : routes->announced) {
    if (announced.stream != &stream) continue;
    placement.pool = announced.pool;
    placement.is_capturing = true;
  }
}

StreamState* PrivateServing::serving_stream(const Placement& placement, StreamState* stream) {
  if (!placement.is_private()) return stream;
  streams_.holds().note_served(placement.pool, stream->index());
  if (StreamState* const known = private_pools_.find(placement, stream->id())) return known;
  StreamState* const pseudo = streams_.adopt_pseudo(*stream);
  if (pseudo == nullptr) return nullptr;
  know(pseudo->index());
  private_pools_.add(placement, stream->id(), *pseudo);
  return pseudo;
}

StreamState* PrivateServing::using_stream(const Placement& placement, StreamState* stream,
                                          const std::vector<ExtraUse>& uses) {
  if (!placement.is_private() || !placement.is_capturing) return stream;
  const auto home =
      std::find_if(uses.begin(), uses.end(), [](const ExtraUse& use) { return use.is_home; });
  // Within one private pool the stream's own ticket is enough, which is not complete before its
  // capture has ended: graphs of one private pool are launched one after the other, and so a later
  // one may have the block.
  const bool is_of_same_pool =
      home != uses.end() && private_pools_.is_of(home->ticket.stream, placement.pool);
  if (is_of_same_pool) return stream;
  return serving_stream(placement, stream);
}

BlockWord PrivateServing::make_private(BlockWord word, const void* pointer, StreamIndex pseudo,
                                       PrivatePools::Kind kind, std::uint64_t bytes) {
  // By this every free of the block comes here, whatever thread and stream it is on.
  extra_uses_[pointer] = {ExtraUse{{pseudo, 0}, true, true}};
  private_pools_.note_taken(pseudo, kind, bytes);
  return word.with_extra_uses();
}

StreamIndex PrivateServing::know(StreamIndex stream) {
  tiers_.know_stream(stream);
  while (depots_.size() <= stream) depots_.push_back(std::make_unique<Depot>());
  depots_[stream]->demand().start(options_.cache_large_bytes);
  return stream;
}

// The end.

std::uint64_t PrivateServing::finish_releases(bool abandoned) {
  if (!private_pools_.is_in_use() && !abandoned) return 0;
  MutexLock turn(release_mu_);
  std::uint64_t count = 0;
  std::vector<Ticket> ended;
  std::vector<RawStream> handles;
  {
    // Nobody records the last event of one that ends now.
    MutexLock events(events_mu_);
    MutexLock lock(mu_);
    count = private_pools_.released_count();
    // Whoever has begun one may be capturing on a stream that is not known.
    if (streams_.holds().is_any_open()) return 0;
    if (abandoned) ended = streams_.close_unawaited();
    if (count == 0 && ended.empty()) return 0;
    handles = streams_.handles();
  }
  // Of captures of streams that are not known the legacy stream tells, but of those that do not
  // synchronise with it.
  Backend& backend = driver_.backend();
  handles.push_back(nullptr);
  const bool is_any_captured = std::any_of(handles.begin(), handles.end(), [&](RawStream raw) {
    const auto state = backend.capture_state(raw);
    return state.ok() && state.value() != CaptureState::none;
  });
  // What is not complete now is waited for at the next step.
  if (is_any_captured || !backend.synchronize_device().ok()) return 0;
  MutexLock events(events_mu_);
  MutexLock lock(mu_);
  for (StreamState* const pseudo : private_pools_.take_released(count)) {
    const auto is_its = [&](const ExtraUse& use) { return use.ticket.stream == pseudo->index(); };
    for (auto& [pointer, uses] : extra_uses_) std::erase_if(uses, is_its);
    streams_.complete_pseudo(pseudo);
  }
  for (const Ticket& ticket : ended) streams_.complete_unawaited(ticket);
  tiers_.refresh();
  tiers_.runs().look_at_pins();
  return count + ended.size();
}

}  // namespace internal

// The public methods.

Result<void, Status> Pool::begin_allocate_to_pool(CapturePoolId id,
                                                  std::function<bool(RawStream)> takes) {
  if (impl_->is_forked()) return internal::closed_pool(true);
  if (auto fault = find_fault("begin_allocate_to_pool", id); !fault.ok()) return fault;
  if (!takes) return invalid("begin_allocate_to_pool: there is no function that takes streams");
  const auto function = std::make_shared<const std::function<bool(RawStream)>>(std::move(takes));
  // Last to let go of a function that is replaced, which may be the program's code, without a lock.
  std::shared_ptr<const internal::Routes> before;
  // No thread waits for the device, nor is any about to record into a stream of which it has asked
  // whether it is captured: from here on that may begin.
  MutexLock turn(impl_->release_mu_);
  MutexLock events(impl_->events_mu_);
  MutexLock lock(impl_->mu_);
  before = impl_->private_pools_.routes();
  impl_->private_pools_.begin(id, function);
  impl_->streams_.holds().begin(id, internal::thread_serial());
  return {};
}

Result<void, Status> Pool::end_allocate_to_pool(CapturePoolId id) {
  if (impl_->is_forked()) return internal::closed_pool(true);
  if (auto fault = find_fault("end_allocate_to_pool", id); !fault.ok()) return fault;
  std::shared_ptr<const internal::Routes> before;
  MutexLock lock(impl_->mu_);
  before = impl_->private_pools_.routes();
  impl_->private_pools_.end(id);
  impl_->streams_.holds().end(id);
  return {};
}

Result<void, Status> Pool::release_pool(CapturePoolId id) {
  if (impl_->is_forked()) return internal::closed_pool(true);
  if (id == CapturePoolId{}) return invalid("release_pool: {0, 0} names no private pool");
  MutexLock lock(impl_->mu_);
  impl_->private_pools_.release(id);
  return {};
}

Result<void, Status> Pool::begin_capture(StreamRef stream, CapturePoolId id) {
  if (impl_->is_forked()) return internal::closed_pool(true);
  if (auto fault = find_fault("begin_capture", id); !fault.ok()) return fault;
  MutexLock turn(impl_->release_mu_);
  MutexLock events(impl_->events_mu_);
  MutexLock lock(impl_->mu_);
  if (!impl_->streams_.is_known(stream.state())) {
    return invalid("begin_capture: the pool does not know the stream");
  }
  impl_->private_pools_.announce(*stream.state(), id);
  impl_->streams_.holds().announce(stream.state()->index(), internal::thread_serial());
  return {};
}

Result<void, Status> Pool::end_capture(StreamRef stream) {
  if (impl_->is_forked()) return internal::closed_pool(true);
  MutexLock lock(impl_->mu_);
  if (!impl_->streams_.is_known(stream.state())) {
    return invalid("end_capture: the pool does not know the stream");
  }
  impl_->private_pools_.withdraw(*stream.state());
  impl_->streams_.holds().withdraw(stream.state()->index());
  return {};
}

}  // namespace gpupool
