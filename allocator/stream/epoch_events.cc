#include "stream/epoch_events.h"

namespace gpupool::internal {

EpochEvents::EpochEvents(Backend& backend) : backend_(backend) { spare_.reserve(kMaxClosedEpochs); }

EpochEvents::~EpochEvents() {
  // The driver may be gone at process exit; an event that cannot be destroyed then is no loss.
  for (const InFlightEvents* events = first_; events != nullptr; events = events->next) {
    for (std::size_t i = 0; i < events->ring.size(); ++i) {
      static_cast<void>(backend_.destroy_event(events->ring[i].event));
    }
  }
  for (const EventHandle event : spare_) static_cast<void>(backend_.destroy_event(event));
}

bool EpochEvents::may_record(const EpochEnd& end) const {
  // First, since its identity must not be asked of a stream that is being captured.
  const auto capture = backend_.capture_state(end.raw);
  if (!capture.ok() || capture.value() != CaptureState::none) return false;
  // The legacy stream's names it for good, also where that was learnt while it could not be asked.
  if (end.raw == nullptr) return true;
  // A handle whose stream was destroyed unannounced may be another stream's by now, whose events
  // say nothing of the former's work.
  const auto id = backend_.stream_id(end.raw);
  return id.ok() && id.value() == end.stream_id;
}

void EpochEvents::record(EpochEnd& end) {
  end.is_recorded = false;
  if (!may_record(end)) return;
  auto& ring = end.events->ring;
  if (!ring.is_full()) {
    end.is_recorded = record_another(end);
  } else if (backend_.record_event(ring.back().event, end.raw).ok()) {
    ring.back().epoch = end.epoch;
    end.is_recorded = true;
  }
}

bool EpochEvents::record_another(const EpochEnd& end) {
  EventHandle event;
  if (spare_.empty()) {
    const auto created = backend_.create_event();
    if (!created.ok()) return false;
    event = created.value();
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  if (!backend_.record_event(event, end.raw).ok()) {
    // A free may be what brought us here, and must not let a list grow. An event that the driver
    // does not destroy is lost to us, and harms nobody.
    if (spare_.size() < spare_.capacity()) {
      spare_.push_back(event);
    } else {
      static_cast<void>(backend_.destroy_event(event));
    }
    return false;
  }
  if (!end.events->is_listed) list(*end.events);
  end.events->ring.push_back({end.epoch, event});
  return true;
}

void EpochEvents::list(InFlightEvents& events) {
  // By stream, so that the order of the driver's calls depends on nothing else.
  InFlightEvents** link = &first_;
  while (*link != nullptr && (*link)->stream < events.stream) link = &(*link)->next;
  events.next = *link;
  events.is_listed = true;
  *link = &events;
}

const std::vector<Ticket>& EpochEvents::poll() {
  completed_.clear();
  for (InFlightEvents* events = first_; events != nullptr; events = events->next) {
    auto& ring = events->ring;
    while (!ring.empty()) {
      const auto done = backend_.query_event(ring.front().event);
      // An event that cannot be asked counts as unfinished: waiting longer is safe.
      if (!done.ok() || !done.value()) break;
      completed_.push_back({events->stream, ring.front().epoch});
      spare_.push_back(ring.front().event);
      ring.pop_front();
    }
  }
  return completed_;
}

std::optional<std::uint64_t> EpochEvents::wait(RawStream stream, const InFlightEvents& events,
                                               std::uint64_t epoch) {
  // A wait would become part of a capture; on the legacy stream it would end another's.
  const auto capture = backend_.capture_state(stream);
  if (!capture.ok() || capture.value() != CaptureState::none) return std::nullopt;
  for (std::size_t i = 0; i < events.ring.size(); ++i) {
    const InFlightEvents::Entry& entry = events.ring[i];
    if (entry.epoch < epoch) continue;
    if (!backend_.wait_event(stream, entry.event).ok()) return std::nullopt;
    return entry.epoch;
  }
  return std::nullopt;
}

void EpochEvents::synchronize() {
  for (const InFlightEvents* events = first_; events != nullptr; events = events->next) {
    for (std::size_t i = 0; i < events->ring.size(); ++i) {
      if (!backend_.synchronize_event(events->ring[i].event).ok()) return;
    }
  }
}

}  // namespace gpupool::internal
