#include "exporter/pool_set.h"

#include <algorithm>
#include <utility>

#include "exporter/http/pool_sources.h"

namespace gpupool::internal {

ServedPool::ServedPool(Pool& pool, const Showing& showing)
    : pool_(pool),
      history_(showing.with_history ? std::make_unique<History>() : nullptr),
      sources_(
          pool_sources(pool, showing.job, showing.with_details, history_.get(), showing.events)) {
  // By whoever adds the pool, so that whoever asks has a past at once, however busy the machine is.
  if (history_ != nullptr) keep_history(std::chrono::steady_clock::now());
}

void ServedPool::keep_history(std::chrono::steady_clock::time_point now) {
  next_sample_ = now + kHistoryPeriod;
  history_->add(pool_.stats());
}

void ServedPool::add_watch(std::shared_ptr<ThresholdWatch> watch) {
  const std::lock_guard lock(mutex_);
  watches_.push_back(std::move(watch));
}

void ServedPool::step(bool has_upkeep) {
  if (has_upkeep) pool_.maintain();
  const auto now = std::chrono::steady_clock::now();
  if (history_ != nullptr && now >= next_sample_) keep_history(now);
  std::vector<std::shared_ptr<ThresholdWatch>> watches;
  {
    const std::lock_guard lock(mutex_);
    watches = watches_;
  }
  for (const auto& watch : watches) watch->check();
}

PoolSet::Added PoolSet::add(std::shared_ptr<ServedPool> served) {
  const Pool& pool = served->pool();
  const std::lock_guard lock(mutex_);
  for (const auto& other : pools_) {
    if (&other->pool() == &pool) return Added::is_there;
    if (other->pool().name() == pool.name() &&
        other->pool().device().ordinal == pool.device().ordinal) {
      return Added::duplicate;
    }
  }
  if (pools_.size() >= max_pools_) return Added::limit;
  pools_.push_back(std::move(served));
  return Added::added;
}

void PoolSet::remove(const Pool& pool) {
  std::unique_lock lock(mutex_);
  const auto found = std::ranges::find_if(
      pools_, [&pool](const auto& served) { return &served->pool() == &pool; });
  if (found == pools_.end()) return;
  const std::shared_ptr<ServedPool> served = *found;
  // Out of the list first: who comes from now on does not find it, so that this ends, however many
  // come.
  pools_.erase(found);
  unused_.wait(lock, [&served] { return served->users_ == 0; });
}

std::unique_ptr<PoolSet::Use> PoolSet::use_all() {
  const std::lock_guard lock(mutex_);
  auto use = std::make_unique<Use>(*this, pools_);
  for (const auto& served : pools_) ++served->users_;
  return use;
}

std::unique_ptr<PoolSet::Use> PoolSet::use_first(
    const std::function<bool(const ServedPool&)>& fits) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(pools_, [&fits](const auto& served) { return fits(*served); });
  if (found == pools_.end()) return nullptr;
  auto use = std::make_unique<Use>(*this, List{*found});
  ++(*found)->users_;
  return use;
}

std::unique_ptr<PoolSet::Use> PoolSet::use(const Pool& pool) {
  return use_first([&pool](const ServedPool& served) { return &served.pool() == &pool; });
}

std::unique_ptr<PoolSet::Use> PoolSet::use(const PoolChoice& choice) {
  return use_first([&choice](const ServedPool& served) {
    const auto device = static_cast<std::uint64_t>(served.pool().device().ordinal);
    return (!choice.name || *choice.name == served.pool().name()) &&
           (!choice.device || *choice.device == device);
  });
}

void PoolSet::for_each(const std::function<void(ServedPool&)>& visit) {
  std::vector<const Pool*> pools;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& served : pools_) pools.push_back(&served->pool());
  }
  // A pool that has gone meanwhile is not found; one that has come in its place is.
  for (const Pool* pool : pools) {
    if (const auto turn = use(*pool)) visit(*turn->pools().front());
  }
}

PoolSet::Use::~Use() {
  const std::lock_guard lock(set_->mutex_);
  for (const auto& served : pools_) --served->users_;
  set_->unused_.notify_all();
}

std::vector<Pool*> PoolSet::Use::pointers() const {
  std::vector<Pool*> result;
  for (const auto& served : pools_) result.push_back(&served->pool());
  return result;
}

}  // namespace gpupool::internal
