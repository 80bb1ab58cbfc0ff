#include "tools/serve/positions.h"

#include <utility>

namespace gpupool::tools {

Result<void, Status> Positions::look(std::uint64_t operation,
                                     const std::function<void(const View&)>& use) {
  const std::lock_guard lock(mutex_);
  const auto found = nearest(operation);
  if (!found.ok()) return found.error();
  Paused& paused = *found.value();
  paused.session->advance_to(operation);
  use({paused.session->pool(), paused.events});
  return {};
}

Result<Positions::Paused*, Status> Positions::nearest(std::uint64_t operation) {
  auto best = paused_.end();
  for (auto each = paused_.begin(); each != paused_.end(); ++each) {
    const std::uint64_t at = (*each)->session->operation();
    if (at <= operation && (best == paused_.end() || at > (*best)->session->operation())) {
      best = each;
    }
  }
  if (best == paused_.end()) {
    auto fresh = std::make_unique<Paused>();
    ReplayOptions options = options_;
    options.observer = &fresh->events;
    auto session = Session::open(trace_, steps_, options);
    if (!session.ok()) return session.error();
    fresh->session = std::move(session).value();
    if (paused_.size() == kKept) paused_.pop_back();
    paused_.push_front(std::move(fresh));
    return paused_.front().get();
  }
  paused_.splice(paused_.begin(), paused_, best);
  return paused_.front().get();
}

}  // namespace gpupool::tools
