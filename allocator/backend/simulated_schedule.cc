#include "backend/simulated_schedule.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpupool::internal {
namespace {

/// When the started work at the head of `stream` ends by itself.
std::uint64_t due_ns(const SimulatedStream& stream) {
  if (!stream.is_head_started) return SimulatedSchedule::kNever;
  const SimulatedWork& work = stream.items.front().work;
  if (work.until_completed) return SimulatedSchedule::kNever;
  const std::uint64_t longest = SimulatedSchedule::kNever - 1 - stream.head_start_ns;
  return stream.head_start_ns + std::min(work.duration_ns, longest);
}

}  // namespace

bool SimulatedMark::is_done() const { return !stream || stream->completed >= position; }

bool SimulatedStream::is_ordered_after(const SimulatedStream* other, std::uint64_t position) const {
  if (other == this) return true;
  return std::any_of(seen.begin(), seen.end(), [&](const SimulatedMark& mark) {
    return mark.stream.get() == other && mark.position >= position;
  });
}

void SimulatedStream::see(const SimulatedMark& mark) {
  if (mark.is_done() || mark.stream.get() == this) return;
  for (SimulatedMark& known : seen) {
    if (known.stream != mark.stream) continue;
    known.position = std::max(known.position, mark.position);
    return;
  }
  seen.push_back(mark);
}

void SimulatedStream::prune_seen() {
  seen.erase(std::remove_if(seen.begin(), seen.end(),
                            [](const SimulatedMark& mark) { return mark.is_done(); }),
             seen.end());
}

SimulatedSchedule::~SimulatedSchedule() {
  // Busy streams may hold marks of each other, in a circle.
  for (const auto& stream : busy_) {
    stream->seen.clear();
    stream->items.clear();
  }
}

const SimulatedUse* SimulatedSchedule::find_conflict(
    const SimulatedStream& stream, const std::vector<SimulatedSegment>& segments) {
  for (const SimulatedSegment& segment : segments) {
    for (const SimulatedUse& use : segment.backing->uses) {
      if (use.position == 0 || use.end <= segment.begin || segment.end <= use.begin) continue;
      if (!stream.is_ordered_after(use.stream, use.position)) return &use;
    }
  }
  return nullptr;
}

void SimulatedSchedule::give(const std::shared_ptr<SimulatedStream>& stream, SimulatedItem item) {
  if (stream->is_idle()) busy_.push_back(stream);
  stream->items.push_back(std::move(item));
  ++stream->given;
}

void SimulatedSchedule::launch(const std::shared_ptr<SimulatedStream>& stream, SimulatedWork work,
                               const std::vector<SimulatedSegment>& segments) {
  SimulatedItem item;
  item.work = std::move(work);
  for (const SimulatedSegment& segment : segments) {
    item.backings.push_back(segment.backing);
    segment.backing->uses.push_back(
        {stream.get(), stream->given + 1, segment.mapped_at, segment.begin, segment.end});
  }
  give(stream, std::move(item));
  run_until(time_ns_);
}

void SimulatedSchedule::wait(const std::shared_ptr<SimulatedStream>& stream,
                             const SimulatedMark& mark, const std::vector<SimulatedMark>& seen) {
  if (mark.is_done() || mark.stream == stream) return;
  stream->prune_seen();
  stream->see(mark);
  for (const SimulatedMark& earlier : seen) stream->see(earlier);
  SimulatedItem item;
  item.is_wait = true;
  item.wait_for = mark;
  give(stream, std::move(item));
  run_until(time_ns_);
}

void SimulatedSchedule::complete(const SimulatedMark& mark) {
  force(mark);
  run_until(time_ns_);
}

void SimulatedSchedule::force(const SimulatedMark& mark) {
  // A stack of our own: chains of streams that wait for each other may be long.
  std::vector<SimulatedMark> stack{mark};
  while (!stack.empty()) {
    const SimulatedMark top = stack.back();
    if (top.is_done()) {
      stack.pop_back();
      continue;
    }
    const SimulatedItem& head = top.stream->items.front();
    if (head.is_wait && !head.wait_for.is_done()) {
      stack.push_back(head.wait_for);
    } else {
      complete_head(*top.stream);
    }
  }
}

bool SimulatedSchedule::complete_next(const std::shared_ptr<SimulatedStream>& stream) {
  std::uint64_t position = stream->completed;
  for (const SimulatedItem& item : stream->items) {
    ++position;
    if (item.is_wait || !item.work.until_completed) continue;
    complete({stream, position});
    return true;
  }
  return false;
}

void SimulatedSchedule::complete_all() {
  for (const SimulatedMark& mark : marks_of_busy()) force(mark);
  run_until(time_ns_);
}

std::vector<SimulatedMark> SimulatedSchedule::marks_of_busy() const {
  std::vector<SimulatedMark> marks;
  for (const auto& stream : busy_) marks.push_back({stream, stream->given});
  return marks;
}

void SimulatedSchedule::complete_head(SimulatedStream& stream) {
  const SimulatedItem item = std::move(stream.items.front());
  stream.items.pop_front();
  stream.is_head_started = false;
  ++stream.completed;
  for (SimulatedBacking* backing : item.backings) backing->remove_uses(&stream, stream.completed);
  if (item.work.body) item.work.body();
}

void SimulatedSchedule::start_heads() {
  bool has_changed = true;
  while (has_changed) {
    has_changed = false;
    for (const auto& stream : busy_) {
      while (!stream->is_idle() && stream->items.front().is_wait &&
             stream->items.front().wait_for.is_done()) {
        complete_head(*stream);
        has_changed = true;
      }
    }
  }
  const auto is_idle = [](const std::shared_ptr<SimulatedStream>& stream) {
    if (stream->is_idle()) stream->seen.clear();
    return stream->is_idle();
  };
  busy_.erase(std::remove_if(busy_.begin(), busy_.end(), is_idle), busy_.end());
  for (const auto& stream : busy_) {
    if (stream->is_head_started || stream->items.front().is_wait) continue;
    stream->is_head_started = true;
    stream->head_start_ns = time_ns_;
  }
}

void SimulatedSchedule::run_until(std::uint64_t now_ns) {
  for (;;) {
    start_heads();
    SimulatedStream* next = nullptr;
    next_due_ns_ = kNever;
    for (const auto& stream : busy_) {
      // On ties the stream that became busy first, so that runs repeat.
      if (due_ns(*stream) >= next_due_ns_) continue;
      next = stream.get();
      next_due_ns_ = due_ns(*stream);
    }
    if (next == nullptr || next_due_ns_ > now_ns) return;
    time_ns_ = std::max(time_ns_, next_due_ns_);
    complete_head(*next);
  }
}

}  // namespace gpupool::internal
