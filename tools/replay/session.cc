#include "tools/replay/session.h"

#include <utility>

#include "tools/device/misuse_log.h"
#include "tools/seconds.h"

namespace gpupool::tools {

Session::Session(const Trace& trace, const std::vector<Step>& steps)
    : steps_(steps),
      loop_(steps, trace.slot_count),
      has_recorded_time_(trace.seconds.has_value()) {}

Session::~Session() {
  // A place in the middle has live blocks, which are no leak of anybody's.
  if (operation_ > 0) {
    Played system = played();
    refused_frees_ += loop_.free_rest(system);
  }
  for (const StreamRef stream : streams_) pool_->release_stream(stream);
}

Result<std::unique_ptr<Session>, Status> Session::open(const Trace& trace,
                                                       const std::vector<Step>& steps,
                                                       const ReplayOptions& options) {
  std::unique_ptr<Session> session(new Session(trace, steps));
  Result<Device, Status> device =
      open_device(options.device, SimulatedTime::virtual_time, options.device_capacity_bytes);
  if (!device.ok()) return device.error();
  session->device_ = std::move(device).value();
  auto raw_streams = DeviceStreams::create(session->device_, trace.streams);
  if (!raw_streams.ok()) return raw_streams.error();
  session->raw_streams_ = std::move(raw_streams).value();
  if (const auto opened = session->open_pool(options); !opened.ok()) return opened.error();
  // Only now, so that the faults hit the replay and not the pool's start.
  session->inject_faults(options.fault_probability);
  return session;
}

Result<void, Status> Session::open_pool(const ReplayOptions& options) {
  PoolOptions pool_options;
  if (options.capacity_bytes) pool_options.capacity = *options.capacity_bytes;
  pool_options.reserve_bytes = options.reserve_bytes;
  pool_options.cache_large_bytes = options.cache_large_bytes;
  pool_options.backing = options.backing;
  pool_options.runtime = options.runtime;
  if (!has_recorded_time_) pool_options.runtime.recycling_wait = 1.0;
  pool_options.misuse_handler = log_misuse;
  pool_options.clock = &clock_;
  pool_options.observer = options.observer;
  if (options.fault_probability > 0) {
    faulty_ = std::make_unique<FaultyBackend>(*device_.backend, options.seed);
  }
  Backend& backend = faulty_ != nullptr ? static_cast<Backend&>(*faulty_) : *device_.backend;
  auto pool = Pool::create(backend, std::move(pool_options));
  if (!pool.ok()) return pool.error();
  pool_ = std::move(pool).value();
  for (RawStream raw : raw_streams_->handles()) {
    const Result<StreamRef> stream = pool_->adopt_stream(raw);
    if (!stream.ok()) {
      return Status{stream.error(),
                    std::string("the pool did not take a stream: ") + to_string(stream.error())};
    }
    streams_.push_back(stream.value());
  }
  return {};
}

void Session::inject_faults(double probability) {
  if (faulty_ == nullptr) return;
  // As the driver fails: memory runs out when it is created, the rest is a driver's error.
  faulty_->fail_at_random(BackendCall::create, probability, Error::out_of_memory);
  faulty_->fail_at_random(BackendCall::allocate, probability, Error::out_of_memory);
  faulty_->fail_at_random(BackendCall::map, probability, Error::backend_failure);
  faulty_->fail_at_random(BackendCall::set_access, probability, Error::backend_failure);
}

PassResult Session::play(std::uint64_t operations) {
  Pool& pool = *pool_;
  Played system = played();
  pool.reset_peaks();
  const StatsV1 before = pool.stats();
  const LoopResult loop = loop_.play(system);
  const StatsV1 after = pool.stats();

  refused_frees_ += loop.refused_frees;
  PassResult result;
  result.operations = operations;
  result.failed = loop.failed;
  result.failed_bytes = loop.failed_bytes;
  if (loop.failed > 0) result.last_failure = pool.last_failure().text();
  result.ns_per_op = loop.ns / static_cast<double>(operations);
  result.hits = after.hits - before.hits;
  constexpr auto kCache = static_cast<std::size_t>(Tier::cache);
  result.cache_hits = after.hits_by_tier[kCache] - before.hits_by_tier[kCache];
  result.misses = after.misses - before.misses;
  result.fallbacks = after.fallbacks - before.fallbacks;
  result.driver_calls = after.driver_calls - before.driver_calls;
  result.driver_seconds = static_cast<double>(after.driver_ns - before.driver_ns) * kSecondsPerNs;
  result.driver_wait_seconds =
      static_cast<double>(after.driver_wait_ns - before.driver_wait_ns) * kSecondsPerNs;
  result.peak_requested_bytes = after.peak_requested_bytes;
  result.peak_held_bytes = after.peak_held_bytes;
  result.largest_free_block_bytes = after.largest_free_block_at_peak_held_bytes;
  return result;
}

void Session::end_pass() {
  Played system = played();
  refused_frees_ += loop_.free_rest(system);
  pool_->drain_caches();
}

std::string Session::find_fault() const {
  if (refused_frees_ != 0) {
    return "the pool refused " + std::to_string(refused_frees_) + " frees of its own blocks";
  }
  return find_violation(device_);
}

void Session::advance(std::uint64_t ns) {
  if (device_.simulated != nullptr) device_.simulated->advance_ns(ns);
  clock_.advance_ns(ns);
}

void Session::maintain() {
  if (device_.simulated != nullptr) device_.simulated->begin_background();
  pool_->maintain();
  if (device_.simulated != nullptr) device_.simulated->end_background();
}

void Session::advance_to(std::uint64_t operation) {
  std::size_t end = next_step_;
  for (std::uint64_t done = operation_; done < operation && end < steps_.size(); ++end) {
    if (steps_[end].kind != StepKind::maintain) ++done;
  }
  Counted system{played()};
  refused_frees_ += loop_.play(system, next_step_, end).refused_frees;
  next_step_ = end;
}

}  // namespace gpupool::tools
