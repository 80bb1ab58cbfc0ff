#include "gpupool/exporter/config_reloader.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "exporter/config/describe.h"

namespace gpupool {
namespace {

constexpr std::string_view kCapacity = "pool.capacity";
constexpr std::string_view kReloadable[] = {kCapacity,
                                            "pool.recycling",
                                            "pool.slack",
                                            "pool.recycling_wait",
                                            "pool.alias_reuse",
                                            "pool.trim.idle_after",
                                            "pool.trim.rate",
                                            "pool.trim.keep_device_free",
                                            "pool.out_of_memory.wait",
                                            "pool.policy",
                                            "alerts."};

bool can_change(std::string_view key) {
  return std::ranges::any_of(kReloadable, [key](std::string_view name) {
    return name.ends_with('.') ? key.starts_with(name) : key == name;
  });
}

/// Keys by whose value the two differ.
std::vector<std::string> differences(const Config& a, const Config& b) {
  const std::vector<internal::Setting> of_a = internal::settings(a);
  const std::vector<internal::Setting> of_b = internal::settings(b);
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    if (of_a[i].value != of_b[i].value) keys.push_back(of_a[i].key);
  }
  return keys;
}

/// What a pool was like, for putting it back.
struct Before {
  Pool* pool;
  RuntimeOptions runtime;
  std::uint64_t limit_bytes;
};

/// All pools as they were. They have been so, which is why they can be so again.
void put_back(const std::vector<Before>& pools) {
  for (const Before& before : pools) {
    static_cast<void>(before.pool->reconfigure(before.runtime));
    if (before.pool->stats().limit_bytes != before.limit_bytes) {
      static_cast<void>(before.pool->set_capacity(before.limit_bytes));
    }
  }
}

std::vector<ConfigError> refused(const Pool& pool, std::string_view key, const Status& status) {
  return {{0, std::string(key),
           "pool " + pool.name() + " of device " + std::to_string(pool.device().ordinal) +
               " cannot have it: " + status.message}};
}

}  // namespace

ConfigReloader::ConfigReloader(Config in_force) : in_force_(std::move(in_force)) {
  static_cast<void>(note(ReloadReport()));
}

ConfigReloader::Outcome ConfigReloader::note(Outcome outcome) {
  state_.is_successful = outcome.ok();
  if (outcome.ok()) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    state_.success_unix_ns = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  }
  return outcome;
}

ReloadState ConfigReloader::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

ConfigReloader::Outcome ConfigReloader::reload_file(const std::string& path,
                                                    const std::vector<Pool*>& pools) {
  auto loaded = load_config_file(path);
  if (loaded.ok()) return reload(loaded.value(), pools);
  const std::lock_guard lock(mutex_);
  return note(std::move(loaded).error());
}

ConfigReloader::Outcome ConfigReloader::reload(const Config& next,
                                               const std::vector<Pool*>& pools) {
  const std::lock_guard lock(mutex_);
  ReloadReport report{.changed = differences(in_force_, next)};
  std::vector<ConfigError> errors;
  for (const std::string& key : report.changed) {
    if (!can_change(key)) {
      errors.push_back({0, key, "cannot change while the process runs; it takes a restart"});
    }
  }
  if (!errors.empty()) return note(std::move(errors));
  if (report.changed.empty()) return note(std::move(report));

  std::vector<Before> before;
  for (Pool* pool : pools) {
    before.push_back({pool, pool->runtime_options(), pool->stats().limit_bytes});
    if (auto done = pool->reconfigure(next.pool.runtime); !done.ok()) {
      put_back(before);
      return note(refused(*pool, "pool", done.error()));
    }
  }
  // Last, as going back from it would make bytes of what was a fraction.
  const bool has_capacity = std::ranges::find(report.changed, kCapacity) != report.changed.end();
  for (std::size_t i = 0; has_capacity && i < pools.size(); ++i) {
    if (auto done = pools[i]->set_capacity(next.pool.capacity); !done.ok()) {
      put_back(before);
      return note(refused(*pools[i], kCapacity, done.error()));
    }
  }
  in_force_ = next;
  return note(std::move(report));
}

}  // namespace gpupool
