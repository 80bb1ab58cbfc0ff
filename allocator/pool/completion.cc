// Closing epochs and looking for completed work: every driver call that this takes is made here,
// under events_mu_ alone. Under mu_ are only the numbers taken and given (stream/stream_table.h).
#include "pool/pool_impl.h"

namespace gpupool {

using internal::EpochEnd;
using internal::MutexLock;
using internal::MutexUnlock;
using internal::Ticket;

namespace {

/// What growing by one page costs at least. To wait as long for another thread's look at the
/// events may save that; to wait longer may not.
constexpr std::chrono::microseconds kBriefly{50};

}  // namespace

std::optional<std::uint64_t> Pool::Impl::complete_work(Patience patience) {
  if (patience == Patience::full) {
    MutexLock events(events_mu_);
    return look_for_completed();
  }
  const auto limit = patience == Patience::brief ? kBriefly : std::chrono::microseconds(0);
  if (!events_mu_.try_lock_for(limit)) return std::nullopt;
  const std::uint64_t completed = look_for_completed();
  events_mu_.unlock();
  return completed;
}

std::optional<std::uint64_t> Pool::Impl::pause_to_complete_work(Patience patience, LadderLog* log) {
  if (log != nullptr) log->note_try(LadderRung::events);
  if (!streams_.has_unfinished()) return 0;
  const std::uint64_t pending = pending_bytes();
  std::optional<std::uint64_t> completed;
  {
    MutexUnlock unlock(mu_);
    completed = complete_work(patience);
  }
  if (log != nullptr && completed.value_or(0) > 0) {
    log->note_gain(LadderRung::events, pending - std::min(pending, pending_bytes()));
  }
  return completed;
}

std::uint64_t Pool::Impl::look_for_completed() {
  closing_.clear();
  {
    MutexLock lock(mu_);
    if (!streams_.has_unfinished()) return 0;
    streams_.begin_close_all(closing_);
  }
  bool has_recorded = false;
  for (EpochEnd& end : closing_) {
    events_.record(end);
    has_recorded = has_recorded || end.is_recorded;
  }
  if (has_recorded) emit({.kind = SlowPathEventKind::epoch_closed});
  const std::vector<Ticket>& completed = events_.poll();

  MutexLock lock(mu_);
  for (const EpochEnd& end : closing_) streams_.end_close(end);
  for (const Ticket& ticket : completed) streams_.complete(ticket);
  if (!completed.empty()) tiers_.refresh();
  return completed.size();
}

bool Pool::Impl::close_epoch(StreamIndex stream) {
  std::optional<EpochEnd> end;
  {
    MutexLock lock(mu_);
    end = streams_.begin_close(stream);
    if (!end.has_value()) return !streams_.needs_event(stream);
  }
  return record(*end);
}

bool Pool::Impl::record(EpochEnd end) {
  events_.record(end);
  MutexLock lock(mu_);
  streams_.end_close(end);
  return end.is_recorded;
}

void Pool::Impl::close_epoch_if_free(StreamIndex stream) {
  // A free waits for nobody: what is due stays due until a later one finds the lock free.
  if (!events_mu_.try_lock()) return;
  close_epoch(stream);
  events_mu_.unlock();
}

void Pool::Impl::wait_for_all_work() {
  MutexLock events(events_mu_);
  look_for_completed();
  events_.synchronize();
  look_for_completed();
}

}  // namespace gpupool
