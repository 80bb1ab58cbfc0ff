// The pools that one exporter shows and looks after: they come and go while it is asked.
//
// Invariants: at most `max_pools`; no two have the same name and device, as their series would be
// the same. Once remove() has returned, nobody uses the pool any more.
// Thread safety: all from any thread; not in a forked child. Cost: a lock and a copy of a few
// pointers for who uses them. remove() waits for who uses that pool meanwhile, and for no other.
#ifndef GPUPOOL_EXPORTER_POOL_SET_H_
#define GPUPOOL_EXPORTER_POOL_SET_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "exporter/http/endpoints.h"
#include "exporter/metrics/history.h"
#include "exporter/metrics/identity.h"
#include "gpupool/exporter/event_log.h"
#include "gpupool/pool.h"
#include "gpupool/threshold_watch.h"

namespace gpupool::internal {

/// One pool and what is kept for it.
class ServedPool {
 public:
  // Twice as often as the history has rows, so that none is missed.
  static constexpr std::chrono::milliseconds kHistoryPeriod{500};

  struct Showing {
    const JobIdentity& job;  // outlives this
    bool with_details = true;
    bool with_history = true;
    const EventLog* events = nullptr;  // outlives this
  };
  ServedPool(Pool& pool, const Showing& showing);
  ServedPool(const ServedPool&) = delete;
  ServedPool& operator=(const ServedPool&) = delete;

  Pool& pool() const noexcept { return pool_; }
  const Sources& sources() const noexcept { return sources_; }

  void add_watch(std::shared_ptr<ThresholdWatch> watch);
  /// Upkeep, if this is who does it; the history; then the program's functions, under no lock. By
  /// one thread.
  void step(bool has_upkeep);

 private:
  friend class PoolSet;

  void keep_history(std::chrono::steady_clock::time_point now);

  Pool& pool_;
  const std::unique_ptr<History> history_;  // nullptr: none is kept
  std::chrono::steady_clock::time_point next_sample_;
  const Sources sources_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::shared_ptr<ThresholdWatch>> watches_;
  int users_ = 0;  // guarded by the set's lock
};

class PoolSet {
 public:
  explicit PoolSet(std::size_t max_pools) : max_pools_(max_pools) {}
  PoolSet(const PoolSet&) = delete;
  PoolSet& operator=(const PoolSet&) = delete;

  enum class Added : std::uint8_t {
    added,
    is_there,   // it was already
    duplicate,  // another one has its name and device
    limit,
  };
  Added add(std::shared_ptr<ServedPool> served);
  void remove(const Pool& pool);

  /// Some of the pools, in the order in which they came; they stay for as long as this lives.
  class Use {
   public:
    Use(PoolSet& set, std::vector<std::shared_ptr<ServedPool>> pools)
        : set_(&set), pools_(std::move(pools)) {}
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    const std::vector<std::shared_ptr<ServedPool>>& pools() const noexcept { return pools_; }
    std::vector<Pool*> pointers() const;

   private:
    PoolSet* set_;
    std::vector<std::shared_ptr<ServedPool>> pools_;
  };
  std::unique_ptr<Use> use_all();
  /// nullptr where it is not, or no more, in the set.
  std::unique_ptr<Use> use(const Pool& pool);
  /// The first that fits.
  std::unique_ptr<Use> use(const PoolChoice& choice);
  /// One after the other, each held for its own turn alone.
  void for_each(const std::function<void(ServedPool&)>& visit);

 private:
  using List = std::vector<std::shared_ptr<ServedPool>>;
  std::unique_ptr<Use> use_first(const std::function<bool(const ServedPool&)>& fits);

  const std::size_t max_pools_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable unused_;
  List pools_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_POOL_SET_H_
