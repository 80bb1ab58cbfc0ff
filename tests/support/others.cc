// Operations of another thread, at the one place where the order of things is not the pool's own:
// between the steps of a close, and of a look at what is complete, where it holds no lock that
// requests need.
#include <thread>

#include "tests/support/world.h"

namespace gpupool::test {

void World::watch_event_calls() {
  for (const BackendCall call : {BackendCall::stream_id, BackendCall::capture_state,
                                 BackendCall::record_event, BackendCall::query_event}) {
    faulty.before(call, [this] { let_another_in(); });
  }
}

void World::let_another_in() {
  // Only inside of operations whose own checks can bear it, and not inside of one that came in.
  if (outer_ == nullptr || list_ == nullptr || next_ >= list_->size()) return;
  const bool is_upkeep =
      std::holds_alternative<Maintain>(*outer_) || std::holds_alternative<Trim>(*outer_);
  if (!is_upkeep && !std::holds_alternative<Allocate>(*outer_)) return;
  const Operation& operation = (*list_)[next_];
  if (std::holds_alternative<Allocate>(operation) && !is_upkeep) return;
  const Operation* const outer = std::exchange(outer_, nullptr);
  if (may_come_in(operation)) {
    ++next_;
    ++others_let_in;
    // A thread in earnest: the one that is in the driver holds a lock.
    std::thread([&] { std::visit([this](const auto& it) { it.apply(*this); }, operation); }).join();
  }
  outer_ = outer;
}

bool World::may_come_in(const Operation& operation) {
  if (const auto* it = std::get_if<Allocate>(&operation)) {
    // One that is served without the driver. Others may have to wait for whom they came in on.
    Stream* at = find_stream(it->stream);
    return at != nullptr && at->is_adopted && !it->is_raw && !has_faults &&
           it->alignment <= kDefaultAlignment && it->allocation_class == AllocationClass::normal &&
           it->bytes > 0 && pool->would_fit(it->bytes, at->ref) == Fit::now;
  }
  return std::holds_alternative<Free>(operation) || std::holds_alternative<Launch>(operation) ||
         std::holds_alternative<RecordStream>(operation) ||
         std::holds_alternative<CompleteStream>(operation) ||
         std::holds_alternative<CompleteAll>(operation) ||
         std::holds_alternative<Advance>(operation);
}

}  // namespace gpupool::test
