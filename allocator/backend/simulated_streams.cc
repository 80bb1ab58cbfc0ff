#include "backend/simulated_streams.h"

#include <utility>

#include "base/thread_serial.h"

namespace gpupool::internal {
namespace {

// Handles look like addresses of structures of the driver.
constexpr std::uintptr_t kFirstHandle = 0x5170'0000'0000;
constexpr std::uintptr_t kHandleStep = 64;

std::string name_of(const SimulatedStream& stream) { return "stream " + std::to_string(stream.id); }

std::string text_of(const SimulatedWork& work) {
  return as_hex(work.address) + " + " + std::to_string(work.bytes) + " bytes";
}

}  // namespace

SimulatedStreams::SimulatedStreams(SimulatedDeviceMemory& memory, SimulatedViolations& violations)
    : memory_(memory), violations_(violations), legacy_(make_stream()) {}

SimulatedStreams::StreamPointer SimulatedStreams::make_stream() {
  return std::make_shared<SimulatedStream>(++last_stream_id_);
}

RawStream SimulatedStreams::create() {
  if (free_slots_.empty()) {
    free_slots_.push_back(slots_.size());
    slots_.emplace_back();
  }
  const std::size_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[slot] = make_stream();
  return reinterpret_cast<RawStream>(kFirstHandle + slot * kHandleStep);
}

bool SimulatedStreams::destroy(RawStream handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  StreamPointer& slot = find_slot(handle);
  if (value < kFirstHandle || !slot) return false;
  if (slot->capture != 0) destroy_graph(end_capture(*slot));
  slot.reset();
  free_slots_.push_back((value - kFirstHandle) / kHandleStep);
  return true;
}

SimulatedStreams::StreamPointer& SimulatedStreams::find_slot(RawStream handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value <= 1) return legacy_;
  if (handle == per_thread_stream()) {
    StreamPointer& stream = thread_streams_[thread_serial()];
    if (!stream) stream = make_stream();
    return stream;
  }
  const std::uintptr_t offset = value - kFirstHandle;  // wraps below it, and is too large then
  if (offset % kHandleStep != 0 || offset / kHandleStep >= slots_.size()) return none_;
  return slots_[offset / kHandleStep];
}

SimulatedStreams::StreamPointer SimulatedStreams::find(RawStream handle) {
  return find_slot(handle);
}

Result<void> SimulatedStreams::launch(RawStream handle, SimulatedWork work) {
  const StreamPointer stream = find(handle);
  if (!stream) return Error::invalid_argument;
  switch (capture_state(*stream)) {
    case CaptureState::none: break;
    case CaptureState::active: return launch_captured(stream, std::move(work));
    case CaptureState::implicit: return refuse_implicit("work");
    case CaptureState::invalidated:
      return violations_.refuse("work on " + name_of(*stream) + ", whose capture is invalidated");
  }
  if (const auto checked = check_work(*stream, work); !checked.ok()) return checked;
  schedule_.launch(stream, std::move(work), segments_);
  return {};
}

Result<void> SimulatedStreams::resolve(const SimulatedWork& work) {
  if (memory_.resolve(work.address, work.bytes, segments_)) return {};
  return violations_.refuse("work on " + text_of(work) +
                            ", not all of which is mapped and accessible");
}

Result<void> SimulatedStreams::check_work(const SimulatedStream& stream,
                                          const SimulatedWork& work) {
  if (const auto resolved = resolve(work); !resolved.ok()) return resolved;
  const SimulatedUse* use = SimulatedSchedule::find_conflict(stream, segments_);
  if (use == nullptr) return {};
  return violations_.refuse("work of " + name_of(stream) + " on " + text_of(work) +
                            ", which unfinished work of " + name_of(*use->stream) +
                            " uses, and nothing orders the two");
}

Result<void> SimulatedStreams::launch_captured(const StreamPointer& stream, SimulatedWork work) {
  if (const auto resolved = resolve(work); !resolved.ok()) return resolved;
  Capture& capture = captures_.at(stream->capture);
  for (const SimulatedSegment& segment : segments_) {
    segment.backing->uses.push_back(
        {stream.get(), 0, segment.mapped_at, segment.begin, segment.end});
    capture.backings.push_back(segment.backing);
  }
  capture.works.push_back(std::move(work));
  return {};
}

Result<void> SimulatedStreams::launch_graph(SimulatedGraph graph, RawStream handle) {
  const StreamPointer stream = find(handle);
  const auto found = graphs_.find(graph.value);
  if (!stream || found == graphs_.end()) return Error::invalid_argument;
  if (capture_state(*stream) != CaptureState::none) {
    return violations_.refuse("a graph launched on " + name_of(*stream) + " during a capture");
  }
  for (const SimulatedWork& work : found->second) {
    if (const auto checked = check_work(*stream, work); !checked.ok()) return checked;
  }
  for (const SimulatedWork& work : found->second) {
    // Where it lies was checked above.
    if (const auto resolved = resolve(work); !resolved.ok()) return resolved;
    schedule_.launch(stream, work, segments_);
  }
  return {};
}

CaptureState SimulatedStreams::capture_state(const SimulatedStream& stream) const {
  if (&stream == legacy_.get()) {
    return captures_.empty() ? CaptureState::none : CaptureState::implicit;
  }
  if (stream.capture == 0) return CaptureState::none;
  return captures_.at(stream.capture).is_invalidated ? CaptureState::invalidated
                                                     : CaptureState::active;
}

Result<std::uint64_t> SimulatedStreams::identify(const StreamPointer& stream) {
  if (stream->capture == 0) return std::uint64_t{stream->id};
  captures_.at(stream->capture).is_invalidated = true;
  return violations_.refuse("the identity asked of " + name_of(*stream) +
                            ", which is being captured");
}

Result<void> SimulatedStreams::begin_capture(const StreamPointer& stream) {
  if (stream == legacy_) return violations_.refuse("capture of the legacy stream");
  if (stream->capture != 0) {
    return violations_.refuse("a second capture of " + name_of(*stream));
  }
  stream->capture = ++last_capture_;
  captures_[last_capture_].streams.push_back(stream);
  return {};
}

SimulatedGraph SimulatedStreams::end_capture(const SimulatedStream& stream) {
  const auto it = captures_.find(stream.capture);
  if (it == captures_.end()) return {};
  for (const StreamPointer& member : it->second.streams) {
    member->capture = 0;
    for (SimulatedBacking* backing : it->second.backings) backing->remove_uses(member.get(), 0);
  }
  SimulatedGraph graph;
  if (!it->second.is_invalidated) {
    graph.value = it->first;
    graphs_[graph.value] = std::move(it->second.works);
  }
  captures_.erase(it);
  return graph;
}

Result<void> SimulatedStreams::check_no_capture(const char* what) {
  if (captures_.empty()) return {};
  for (auto& [id, capture] : captures_) capture.is_invalidated = true;
  return violations_.refuse(std::string(what) + " while a stream is captured");
}

Error SimulatedStreams::refuse_implicit(const char* what) {
  // As on a card: what the legacy stream is given while another is captured ends that capture.
  for (auto& [id, capture] : captures_) capture.is_invalidated = true;
  return violations_.refuse(std::string(what) +
                            " on the legacy stream while another stream is captured");
}

EventHandle SimulatedStreams::create_event() {
  if (free_events_.empty()) {
    free_events_.push_back(static_cast<std::uint32_t>(events_.size()));
    events_.emplace_back();
  }
  const std::uint32_t index = free_events_.back();
  free_events_.pop_back();
  Event& event = events_[index];
  event.is_live = true;
  ++event.generation;
  return EventHandle{(std::uint64_t{event.generation} << 32) | index};
}

SimulatedStreams::Event* SimulatedStreams::find_event(EventHandle handle) {
  const auto index = static_cast<std::uint32_t>(handle.value);
  if (index >= events_.size()) return nullptr;
  Event& event = events_[index];
  return event.is_live && event.generation == handle.value >> 32 ? &event : nullptr;
}

Result<void> SimulatedStreams::destroy_event(EventHandle handle) {
  Event* event = find_event(handle);
  if (event == nullptr) return Error::invalid_argument;
  event->is_live = false;
  event->mark = {};
  event->seen.clear();
  event->capture = 0;
  free_events_.push_back(static_cast<std::uint32_t>(handle.value));
  return {};
}

Result<void> SimulatedStreams::record_event(EventHandle handle, RawStream stream_handle) {
  Event* event = find_event(handle);
  const StreamPointer& stream = find_slot(stream_handle);
  if (event == nullptr || !stream) return Error::invalid_argument;
  switch (capture_state(*stream)) {
    case CaptureState::none: break;
    case CaptureState::active:
      event->capture = stream->capture;
      event->mark = {};
      event->seen.clear();
      return {};
    case CaptureState::implicit: return refuse_implicit("an event recorded");
    case CaptureState::invalidated:
      return violations_.refuse("an event recorded on " + name_of(*stream) +
                                ", whose capture is invalidated");
  }
  event->capture = 0;
  event->seen.clear();
  if (stream->is_idle()) {
    event->mark = {};
    return {};
  }
  stream->prune_seen();
  event->mark = {stream, stream->given};
  event->seen = stream->seen;
  return {};
}

Result<SimulatedMark> SimulatedStreams::find_mark(EventHandle handle) {
  Event* event = find_event(handle);
  if (event == nullptr) return Error::invalid_argument;
  if (event->capture == 0) return event->mark;
  if (const auto it = captures_.find(event->capture); it != captures_.end()) {
    it->second.is_invalidated = true;
  }
  return violations_.refuse("an event queried that was recorded in a capture");
}

Result<bool> SimulatedStreams::query_event(EventHandle handle) {
  Event* event = find_event(handle);
  if (event == nullptr) return Error::invalid_argument;
  if (event->capture != 0) return find_mark(handle).error();
  if (!event->mark.is_done()) return false;
  event->mark = {};
  event->seen.clear();
  return true;
}

Result<void> SimulatedStreams::wait_event(RawStream stream_handle, EventHandle handle) {
  const StreamPointer stream = find(stream_handle);
  const Event* event = find_event(handle);
  if (!stream || event == nullptr) return Error::invalid_argument;
  const CaptureState state = capture_state(*stream);
  if (state == CaptureState::implicit) return refuse_implicit("a wait");
  if (state != CaptureState::none || event->capture != 0) return wait_in_capture(stream, *event);
  schedule_.wait(stream, event->mark, event->seen);
  return {};
}

Result<void> SimulatedStreams::wait_in_capture(const StreamPointer& stream, const Event& event) {
  const auto it = captures_.find(event.capture != 0 ? event.capture : stream->capture);
  if (it == captures_.end()) {
    return violations_.refuse("a wait for an event of a capture that has ended");
  }
  Capture& capture = it->second;
  if (capture.is_invalidated || event.capture == 0 ||
      (stream->capture != 0 && stream->capture != event.capture)) {
    capture.is_invalidated = true;
    return violations_.refuse("a wait of " + name_of(*stream) +
                              " across the edge of a capture, or in one that is invalidated");
  }
  if (stream->capture == 0) {  // the stream joins, as in a fork
    stream->capture = event.capture;
    capture.streams.push_back(stream);
  }
  return {};
}

}  // namespace gpupool::internal
