// The last events of a pool's slow path, for the page and for /api/v1/events: driver calls, growth,
// misses, trims, and each failure with its whole report.
//
//   gpupool::EventLog events;             // before the pool, and longer than it
//   pool_options.observer = &events;
//   exporter_options.events = &events;
//
// Every event has a number, from 1; a reader asks for those after the last one that it has seen.
// Failures are kept longer than the others, which a busy pool makes many of.
// Thread safety: any thread. Cost: an event that is recorded takes one lock, for a copy of 100
// bytes; a failure's report is copied, too. About 400 KB of host memory.
#ifndef GPUPOOL_EXPORTER_EVENT_LOG_H_
#define GPUPOOL_EXPORTER_EVENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "gpupool/failure_report.h"
#include "gpupool/observer.h"

namespace gpupool {

class EventLog final : public SlowPathObserver {
 public:
  static constexpr std::size_t kEvents = 4096;
  static constexpr std::size_t kFailures = 64;

  struct Entry {
    std::uint64_t number = 0;
    SlowPathEvent event;  // its `report` is nullptr
    /// Of a failure; nullptr where there was no memory for it.
    std::shared_ptr<const FailureReport> failure;
  };

  EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  void on_event(const SlowPathEvent& event) noexcept override;

  /// What is left of the events after number `after`, the oldest first.
  std::vector<Entry> entries_after(std::uint64_t after) const;
  /// Of the last event; 0: there was none.
  std::uint64_t last_number() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Entry> ring_;     // event n at n % kEvents
  std::deque<Entry> failures_;  // the oldest first
  std::uint64_t last_number_ = 0;
};

}  // namespace gpupool

#endif  // GPUPOOL_EXPORTER_EVENT_LOG_H_
