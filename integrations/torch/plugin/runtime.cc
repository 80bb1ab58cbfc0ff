#include "integrations/torch/plugin/runtime.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "gpupool/cuda_backend.h"
#include "gpupool/misuse_text.h"
#include "gpupool/simulated_backend.h"
#include "integrations/torch/plugin/log.h"
#include "integrations/torch/plugin/other_copy.h"
#include "integrations/torch/plugin/serving.h"

namespace gpupool::torch {
namespace {

/// How long the process's end waits for a step of upkeep.
constexpr std::chrono::milliseconds kPatience(2000);

// For the handlers below, which are called without a context.
std::atomic<std::atomic<Phase>*> process_phase{nullptr};
Upkeep* process_upkeep = nullptr;

void note_fork() { process_phase.load()->store(Phase::forked, std::memory_order_relaxed); }

void note_exit() {
  Phase expected = Phase::running;
  // A forked child has no upkeep thread, and its lock may have been taken at the fork.
  if (!process_phase.load()->compare_exchange_strong(expected, Phase::ending)) return;
  retire_serving();
  process_upkeep->end(kPatience);
}

/// By value: the pool keeps it for as long as it lives.
auto misuse_handler(int device, std::vector<std::string> tags) {
  return [device, tags = std::move(tags)](const MisuseReport& report) {
    if (!report.first_of_kind) return;
    log_line("device " + std::to_string(device) + ": misuse, refused or ignored: " +
             misuse_text(report, tags) + "; further ones of this kind are only counted");
  };
}

}  // namespace

Runtime& Runtime::instance() {
  static Runtime* const runtime = new Runtime();
  return *runtime;
}

Status Runtime::refuse_late_call() {
  if (phase() == Phase::forked) {
    counters_.calls_after_fork.fetch_add(1, std::memory_order_relaxed);
    return {Error::not_supported,
            "gpupool: this process was forked from one that had begun to use the GPU, and cannot"
            " use it itself. Start workers with the 'spawn' or 'forkserver' method of"
            " torch.multiprocessing, or keep CUDA tensors out of them."};
  }
  counters_.calls_at_exit.fetch_add(1, std::memory_order_relaxed);
  return {Error::not_supported, "gpupool: the process is ending, no memory is given out any more"};
}

Result<void, Status> Runtime::configure(const char* path) {
  // Before the lock, which some thread may have had when this process was forked.
  if (phase() != Phase::running) return refuse_late_call();
  const std::lock_guard lock(mutex_);
  return configure_locked(path);
}

Result<void, Status> Runtime::configure_locked(const char* path) {
  const char* const named = path != nullptr ? path : std::getenv("GPUPOOL_CONFIG");
  const std::string wanted = named == nullptr ? "" : named;
  if (settings_.has_value()) {
    if (settings_->path == wanted) return {};
    return Status{Error::invalid_argument,
                  "gpupool: already configured by " +
                      (settings_->path.empty() ? "the defaults" : settings_->path) + ", not by " +
                      (wanted.empty() ? "the defaults" : wanted)};
  }
  if (const std::string other = find_other_copy_in_use(); !other.empty()) {
    return Status{Error::invalid_argument,
                  "gpupool: another copy of the plug-in already serves this process: " + other +
                      ". Use that one everywhere: two pools would compete for the card."};
  }
  auto settings = read_settings(wanted);
  if (!settings.ok()) return Status{settings.error().code, "gpupool: " + settings.error().message};
  settings_ = std::move(settings).value();
  is_in_use_.store(true);
  return {};
}

Result<void, Status> Runtime::set_memory_fraction(double fraction, int device) {
  if (phase() != Phase::running) return refuse_late_call();
  const std::lock_guard lock(mutex_);
  if (device < 0 || device >= kMaxDevices || !(fraction > 0) || fraction > 1) {
    return Status{Error::invalid_argument,
                  "gpupool: a memory fraction is above 0 and at most 1, for devices 0 to 63"};
  }
  gpupool_pool* const pool = find(device);
  if (pool != nullptr) {
    if (auto limited = limit_to(fraction, device, pool_of(pool)); !limited.ok()) {
      return Status{limited.error().code, "gpupool: " + limited.error().message};
    }
  }
  fractions_[static_cast<std::size_t>(device)] = fraction;
  return {};
}

Result<gpupool_pool*, Status> Runtime::make(int device) {
  if (phase() != Phase::running) return refuse_late_call();
  if (device < 0 || device >= kMaxDevices) {
    return Status{Error::invalid_argument,
                  "gpupool: device " + std::to_string(device) + " is none of 0 to 63"};
  }
  if (gpupool_pool* const known = find(device)) return known;
  const std::lock_guard lock(mutex_);
  if (gpupool_pool* const known = find(device)) return known;
  return make_locked(device);
}

Result<gpupool_pool*, Status> Runtime::make_locked(int device) {
  if (!settings_.has_value()) {
    if (auto configured = configure_locked(nullptr); !configured.ok()) return configured.error();
  }
  const auto failed = [device](const Status& status) {
    return Status{status.code,
                  "gpupool: no pool for device " + std::to_string(device) + ": " + status.message};
  };
  const Config& config = settings_->config;
  auto backend = open_device(device);
  if (!backend.ok()) return failed(backend.error());
  PoolOptions options = config.pool;
  options.misuse_handler = misuse_handler(device, options.tags);
  ExporterOptions exporter = config.exporter;
  options.observer = keep_events(exporter);
  auto pool = Pool::create(*backend.value(), std::move(options));
  if (!pool.ok()) return failed(pool.error());
  const auto index = static_cast<std::size_t>(device);
  configured_[index] = pool.value()->stats().limit_bytes;
  // Afterwards, so that there are addresses for as much as the fraction may be raised to.
  if (const double fraction = fractions_[index]; fraction > 0) {
    if (auto limited = limit_to(fraction, device, *pool.value()); !limited.ok()) {
      return failed(limited.error());
    }
  }
  gpupool_pool* const made = make_c_handle(std::move(backend).value(), std::move(pool).value(),
                                           config.torch.default_stream);
  // After the device was opened, so that at exit ours is called before the driver's own handlers.
  watch_process();
  pools_[static_cast<std::size_t>(device)].store(made, std::memory_order_release);
  if (config.torch.maintain_every_ns > 0 &&
      !upkeep_.start(std::chrono::nanoseconds(config.torch.maintain_every_ns),
                     [this] { keep_up(); })) {
    log_line("no thread for upkeep: idle memory is not given back by itself");
  }
  if (exporter.enabled) serve_locked(device, pool_of(made), exporter.events);
  return made;
}

Result<std::unique_ptr<Backend>, Status> Runtime::open_device(int device) const {
  if (settings_->config.torch.device == TorchDevice::cuda) return open_cuda_backend(device);
  SimulatedDeviceOptions options;
  options.ordinal = device;
  return std::unique_ptr<Backend>(std::make_unique<SimulatedBackend>(std::move(options)));
}

Result<void, Status> Runtime::limit_to(double fraction, int device, Pool& pool) const {
  const auto whole = static_cast<double>(pool.stats().device_total_bytes);
  const auto of_whole = static_cast<std::uint64_t>(whole * fraction);
  return pool.set_capacity(std::min(of_whole, configured_[static_cast<std::size_t>(device)]));
}

void Runtime::watch_process() {
  if (is_watching_) return;
  is_watching_ = true;
  process_upkeep = &upkeep_;
  process_phase.store(&phase_);
  if (pthread_atfork(nullptr, nullptr, note_fork) != 0 || std::atexit(note_exit) != 0) {
    log_line("the process's forks or end cannot be watched: out of host memory");
  }
}

void Runtime::keep_up() {
  for_each_pool([](int /*device*/, gpupool_pool* pool) { pool_of(pool).maintain(); });
}

void Runtime::serve_locked(int device, Pool& pool, const EventLog* events) {
  auto served = serve(pool, settings_->loaded, events);
  if (served.ok()) {
    urls_[static_cast<std::size_t>(device)] = served.value();
    log_line("device " + std::to_string(device) + ": metrics at " + served.value());
    return;
  }
  log_line("device " + std::to_string(device) +
           ": no metrics by HTTP, the pool works on: " + served.error().message);
}

Result<Tag, Status> Runtime::find_tag(const std::string& name) {
  if (phase() != Phase::running) return refuse_late_call();
  const std::lock_guard lock(mutex_);
  if (!settings_.has_value()) {
    if (auto configured = configure_locked(nullptr); !configured.ok()) return configured.error();
  }
  const auto& tags = settings_->config.pool.tags;
  const auto found = std::find(tags.begin(), tags.end(), name);
  if (found != tags.end()) return Tag(static_cast<std::uint8_t>(found - tags.begin()));
  std::string allowed;
  for (const std::string& tag : tags) allowed += (allowed.empty() ? "" : ", ") + tag;
  return Status{Error::invalid_argument,
                "gpupool: no tag is named '" + name + "'; the configuration has " + allowed};
}

std::string Runtime::url(int device) const {
  if (device < 0 || device >= kMaxDevices) return {};
  const std::lock_guard lock(mutex_);
  return urls_[static_cast<std::size_t>(device)];
}

}  // namespace gpupool::torch
