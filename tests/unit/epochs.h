// A StreamTable and its events as one, for the tests of a single thread: the steps of a close, and
// of a look at what is complete, in a row.
#ifndef GPUPOOL_TESTS_UNIT_EPOCHS_H_
#define GPUPOOL_TESTS_UNIT_EPOCHS_H_

#include <vector>

#include "stream/epoch_events.h"
#include "stream/stream_table.h"

namespace gpupool::internal {

class Epochs : public StreamTable {
 public:
  explicit Epochs(Backend& backend) : events_(backend) {}

  /// False where something is left that no event covers.
  bool close_epoch(StreamIndex stream) {
    if (auto end = begin_close(stream)) record(*end);
    return !needs_event(stream);
  }
  void close_epochs() {
    std::vector<EpochEnd> ends;
    begin_close_all(ends);
    for (EpochEnd& end : ends) record(end);
  }
  void end_stream(StreamState* state) {
    if (auto end = release(state)) record(*end);
  }
  std::uint64_t poll() {
    const std::vector<Ticket>& completed = events_.poll();
    for (const Ticket& ticket : completed) complete(ticket);
    return completed.size();
  }
  void synchronize() {
    close_epochs();
    events_.synchronize();
    poll();
  }
  EpochEvents& events() { return events_; }

 private:
  void record(EpochEnd& end) {
    events_.record(end);
    end_close(end);
  }

  EpochEvents events_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_TESTS_UNIT_EPOCHS_H_
