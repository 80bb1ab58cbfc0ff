#include "bench/peers/gpupool_system.h"

#include <chrono>
#include <string>
#include <type_traits>
#include <utility>

#include "tools/device/misuse_log.h"

namespace gpupool::bench {

template <class StreamType, Recycling kRecycling>
Result<std::unique_ptr<GpupoolSystem<StreamType, kRecycling>>, Status>
GpupoolSystem<StreamType, kRecycling>::open(const SystemSetting& setting) {
  std::unique_ptr<GpupoolSystem> system(new GpupoolSystem());
  auto device = tools::open_device(setting.device, SimulatedTime::virtual_time);
  if (!device.ok()) return device.error();
  system->device_ = std::move(device).value();
  auto streams = tools::DeviceStreams::create(system->device_, setting.streams);
  if (!streams.ok()) return streams.error();
  system->raw_streams_ = std::move(streams).value();
  if (const auto opened = system->open_pool(setting.is_virtual_time); !opened.ok()) {
    return opened.error();
  }
  return system;
}

template <class StreamType, Recycling kRecycling>
Result<void, Status> GpupoolSystem<StreamType, kRecycling>::open_pool(bool is_virtual_time) {
  PoolOptions options;
  options.runtime.recycling = kRecycling;
  options.misuse_handler = tools::log_misuse;
  if (is_virtual_time && device_.simulated == nullptr) options.clock = &clock_;
  auto pool = Pool::create(*device_.backend, std::move(options));
  if (!pool.ok()) return pool.error();
  pool_ = std::move(pool).value();
  for (const RawStream raw : raw_streams_->handles()) {
    // The handle's way in makes a stream known by itself; this is the announcement of its end.
    const Result<StreamRef> ref = pool_->adopt_stream(raw);
    if (!ref.ok()) {
      return Status{ref.error(),
                    std::string("the pool did not take a stream: ") + to_string(ref.error())};
    }
    refs_.push_back(ref.value());
    if constexpr (std::is_same_v<StreamType, StreamRef>) {
      streams_.push_back(ref.value());
    } else {
      streams_.push_back(raw);
    }
  }
  return {};
}

template <class StreamType, Recycling kRecycling>
GpupoolSystem<StreamType, kRecycling>::~GpupoolSystem() {
  for (const StreamRef ref : refs_) pool_->release_stream(ref);
}

template <class StreamType, Recycling kRecycling>
Usage GpupoolSystem<StreamType, kRecycling>::usage() const {
  const StatsV1 stats = pool_->stats();
  const auto calls = [&stats](DriverOperation operation) {
    return stats.driver_calls_by_operation[static_cast<std::size_t>(operation)];
  };
  Usage usage;
  usage.held_bytes = stats.held_bytes;
  usage.peak_held_bytes = stats.peak_held_bytes;
  usage.driver_allocations = calls(DriverOperation::create) + calls(DriverOperation::allocate);
  usage.driver_calls = stats.driver_calls;
  return usage;
}

template <class StreamType, Recycling kRecycling>
void GpupoolSystem<StreamType, kRecycling>::advance(std::uint64_t ns) {
  if (device_.simulated != nullptr) {
    device_.simulated->advance_ns(ns);
  } else {
    clock_.advance_ns(ns);
  }
  pool_->maintain();
}

template <class StreamType, Recycling kRecycling>
void GpupoolSystem<StreamType, kRecycling>::empty() {
  pool_->drain_caches();
  // The first step closes the epochs of what was freed, the second sees them complete: nothing
  // else was given to the streams.
  pool_->maintain();
  pool_->maintain();
  pool_->trim(0);
}

Result<std::unique_ptr<GpupoolServed>, Status> GpupoolServed::open(const SystemSetting& setting) {
  SystemSetting real = setting;
  real.is_virtual_time = false;
  auto system = GpupoolSystem<StreamRef>::open(real);
  if (!system.ok()) return system.error();
  std::unique_ptr<GpupoolServed> served(new GpupoolServed());
  served->system_ = std::move(system).value();
  served->maintainer_ = std::thread([served = served.get()] {
    while (!served->is_ending_.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      served->system_->pool().maintain();
    }
  });
  return served;
}

GpupoolServed::~GpupoolServed() {
  is_ending_ = true;
  maintainer_.join();
}

template class GpupoolSystem<StreamRef>;
template class GpupoolSystem<RawStream>;
template class GpupoolSystem<StreamRef, Recycling::off>;

}  // namespace gpupool::bench
