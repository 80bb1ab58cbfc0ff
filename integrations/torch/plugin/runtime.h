// The state of the plug-in in its process: what it was told, one pool a device, and whether the
// process may still use them.
//
// It is made at the first call and never destroyed, nor are the pools: the process ends with them,
// as no driver call may come from static destructors or exit handlers. From a fork on (in the
// child) and from the beginning of exit() on nothing reaches a pool any more: requests are refused
// with a text, frees are counted and dropped.
//
// Thread safety: all from any thread. Cost: find() and phase() a load each; make() that of a pool.
#ifndef GPUPOOL_INTEGRATIONS_TORCH_RUNTIME_H_
#define GPUPOOL_INTEGRATIONS_TORCH_RUNTIME_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "gpupool/c_handle.h"
#include "gpupool/status.h"
#include "integrations/torch/plugin/pool_uses.h"
#include "integrations/torch/plugin/settings.h"
#include "integrations/torch/plugin/upkeep.h"

namespace gpupool::torch {

inline constexpr int kMaxDevices = 64;

enum class Phase : std::uint8_t { running, forked, ending };

/// See gpupool_torch_counters.
struct Counters {
  std::atomic<std::uint64_t> refused_sizes{0};
  std::atomic<std::uint64_t> wrong_devices{0};
  std::atomic<std::uint64_t> wrong_streams{0};
  // Shown as one, and kept apart as each is told of at its first. The first are counted by the
  // named device's pool as well, as a misuse.
  std::atomic<std::uint64_t> foreign_frees{0};
  std::atomic<std::uint64_t> frees_without_pool{0};
  std::atomic<std::uint64_t> foreign_records{0};
  std::atomic<std::uint64_t> calls_after_fork{0};
  std::atomic<std::uint64_t> calls_at_exit{0};
};

class Runtime {
 public:
  /// The process has one.
  static Runtime& instance();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Phase phase() const noexcept { return phase_.load(std::memory_order_relaxed); }
  /// Counts a call that comes too late; what its caller is told.
  Status refuse_late_call();
  bool is_in_use() const noexcept { return is_in_use_.load(std::memory_order_relaxed); }

  /// nullptr: what GPUPOOL_CONFIG names, or the defaults.
  Result<void, Status> configure(const char* path);
  /// Of the whole card, from now on; a tighter capacity of the configuration stays.
  Result<void, Status> set_memory_fraction(double fraction, int device);

  /// The device's pool, nullptr where none was made yet.
  gpupool_pool* find(int device) const noexcept {
    if (device < 0 || device >= kMaxDevices) return nullptr;
    return pools_[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
  }
  /// The device's pool, made where there is none.
  Result<gpupool_pool*, Status> make(int device);
  template <class Visitor>
  void for_each_pool(const Visitor& visitor) const {
    for (int device = 0; device < kMaxDevices; ++device) {
      if (gpupool_pool* const pool = find(device)) visitor(device, pool);
    }
  }
  /// All pools have the configuration's tags, in its order.
  Result<Tag, Status> find_tag(const std::string& name);
  std::string url(int device) const;
  Counters& counters() noexcept { return counters_; }
  PoolUses& pool_uses() noexcept { return pool_uses_; }

 private:
  Runtime() = default;
  Result<void, Status> configure_locked(const char* path);
  Result<gpupool_pool*, Status> make_locked(int device);
  Result<std::unique_ptr<Backend>, Status> open_device(int device) const;
  Result<void, Status> limit_to(double fraction, int device, Pool& pool) const;
  void watch_process();
  void keep_up();
  void serve_locked(int device, Pool& pool, const EventLog* events);

  std::atomic<Phase> phase_{Phase::running};
  std::atomic<bool> is_in_use_{false};
  std::array<std::atomic<gpupool_pool*>, kMaxDevices> pools_{};
  Counters counters_;
  PoolUses pool_uses_;
  Upkeep upkeep_;

  mutable std::mutex mutex_;  // guards what follows
  bool is_watching_ = false;
  std::optional<Settings> settings_;
  std::array<double, kMaxDevices> fractions_{};          // 0: not set
  std::array<std::uint64_t, kMaxDevices> configured_{};  // the limits without them
  std::array<std::string, kMaxDevices> urls_;
};

}  // namespace gpupool::torch

#endif  // GPUPOOL_INTEGRATIONS_TORCH_RUNTIME_H_
