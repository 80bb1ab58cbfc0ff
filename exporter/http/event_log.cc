#include "gpupool/exporter/event_log.h"

#include <algorithm>
#include <exception>
#include <iterator>

namespace gpupool {
namespace {

constexpr std::uint64_t kEntriesAPart = 64;

}  // namespace

EventLog::EventLog() : ring_(kEvents) {}

void EventLog::on_event(const SlowPathEvent& event) noexcept {
  Entry entry{.number = 0, .event = event, .failure = nullptr};
  entry.event.report = nullptr;
  try {
    if (event.report != nullptr) {
      entry.failure = std::make_shared<const FailureReport>(*event.report);
    }
  } catch (const std::exception&) {
    // No host memory for the report: the event says what it can.
  }
  const std::lock_guard lock(mutex_);
  entry.number = ++last_number_;
  if (entry.failure != nullptr) {
    try {
      if (failures_.size() == kFailures) failures_.pop_front();
      failures_.push_back(entry);
    } catch (const std::exception&) {
      // The ring below has it, for as long as it has anything.
    }
  }
  ring_[entry.number % kEvents] = std::move(entry);
}

std::uint64_t EventLog::last_number() const {
  const std::lock_guard lock(mutex_);
  return last_number_;
}

std::vector<EventLog::Entry> EventLog::entries_after(std::uint64_t after) const {
  std::vector<Entry> entries;
  std::uint64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = last_number_;
    const std::uint64_t oldest = last - std::min<std::uint64_t>(last, kEvents - 1);
    std::ranges::copy_if(failures_, std::back_inserter(entries), [&](const Entry& failure) {
      return failure.number > after && failure.number < oldest;
    });
    after = std::max(after, oldest == 0 ? 0 : oldest - 1);
  }
  // A part at a time, as a thread that allocates may be waiting for the lock.
  while (after < last) {
    const std::uint64_t end = std::min(last, after + kEntriesAPart);
    const std::lock_guard lock(mutex_);
    for (std::uint64_t number = after + 1; number <= end; ++number) {
      const Entry& entry = ring_[number % kEvents];
      if (entry.number == number) entries.push_back(entry);  // else overwritten meanwhile
    }
    after = end;
  }
  return entries;
}

}  // namespace gpupool
