#include "exporter/reloading.h"

#include <chrono>
#include <utility>

namespace gpupool::internal {
namespace {

std::uint64_t unix_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

std::string joined(const std::vector<std::string>& keys) {
  std::string result;
  for (const std::string& key : keys) result += (result.empty() ? "" : ", ") + key;
  return result;
}

std::vector<ConfigError> not_enabled() {
  return {{0, "", "cannot be exchanged: Exporter::enable_reload was not called"}};
}

}  // namespace

Reloading::Reloading(PoolSet& pools, Log log)
    : pools_(pools), log_(std::move(log)), start_unix_ns_(unix_ns()) {}

bool Reloading::enable(const Config& in_force, bool on_sighup) {
  const std::lock_guard lock(mutex_);
  if (reloader_ != nullptr) return false;
  reloader_ = std::make_shared<ConfigReloader>(in_force);
  path_ = in_force.path;
  // Without a file there is nothing that could be read again.
  if (!on_sighup || path_.empty()) return false;
  signal_ = std::make_unique<HangUpSignal>();
  return true;
}

std::shared_ptr<ConfigReloader> Reloading::reloader() const {
  const std::lock_guard lock(mutex_);
  return reloader_;
}

ConfigReloader::Outcome Reloading::reload(const Config& next) {
  const auto found = reloader();
  if (found == nullptr) return not_enabled();
  const auto use = pools_.use_all();
  return found->reload(next, use->pointers());
}

ConfigReloader::Outcome Reloading::reload_file(const std::string& path) {
  const auto found = reloader();
  if (found == nullptr) return not_enabled();
  const auto use = pools_.use_all();
  return found->reload_file(path, use->pointers());
}

void Reloading::reload_if_told() {
  std::string path;
  {
    const std::lock_guard lock(mutex_);
    if (signal_ == nullptr || !signal_->take()) return;
    path = path_;
  }
  const auto outcome = reload_file(path);
  if (outcome.ok()) {
    const std::string changed = joined(outcome.value().changed);
    log_("configuration read again from " + path +
         (changed.empty() ? ": nothing has changed" : ", changed: " + changed));
    return;
  }
  for (const ConfigError& error : outcome.error()) {
    log_("configuration not taken, the one before stays: " + error.text(path));
  }
}

void Reloading::stop_watching() {
  const std::lock_guard lock(mutex_);
  signal_.reset();
}

ReloadState Reloading::state() const {
  const auto found = reloader();
  return found != nullptr ? found->state() : ReloadState{.success_unix_ns = start_unix_ns_};
}

}  // namespace gpupool::internal
