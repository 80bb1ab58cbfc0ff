#include "tools/device/device.h"

#include <utility>

#include "gpupool/cuda_backend.h"
#include "tools/device/cuda_streams.h"
#include "tools/terminal/units.h"

namespace gpupool::tools {

Device make_simulated_device(SimulatedDeviceOptions options) {
  auto backend = std::make_unique<SimulatedBackend>(std::move(options));
  Device device;
  device.simulated = backend.get();
  device.backend = std::move(backend);
  return device;
}

namespace {

Device make_simulated(SimulatedTime time, std::uint64_t capacity_bytes) {
  SimulatedDeviceOptions options;
  options.time = time;
  options.capacity_bytes = capacity_bytes;
  return make_simulated_device(std::move(options));
}

}  // namespace

Result<Device, Status> open_device(DeviceChoice choice, SimulatedTime time,
                                   std::uint64_t simulated_capacity_bytes) {
  if (choice == DeviceChoice::simulated) return make_simulated(time, simulated_capacity_bytes);
  Result<std::unique_ptr<Backend>, Status> opened = open_cuda_backend(0);
  if (opened.ok()) {
    Device device;
    device.backend = std::move(opened).value();
    return device;
  }
  if (choice == DeviceChoice::cuda) {
    return Status{opened.error().code, "no CUDA device: " + opened.error().message};
  }
  Device device = make_simulated(time, simulated_capacity_bytes);
  device.notice = "no GPU: using the simulated device (" + human_bytes(simulated_capacity_bytes) +
                  "): " + opened.error().message;
  return device;
}

std::string find_violation(const Device& device) {
  if (device.simulated == nullptr || device.simulated->violation_count() == 0) return {};
  return "the simulated device refused " + std::to_string(device.simulated->violation_count()) +
         " operations: " + device.simulated->last_violation();
}

Result<std::unique_ptr<DeviceStreams>, Status> DeviceStreams::create(
    Device& device, const std::vector<std::uint64_t>& numbers) {
  std::unique_ptr<DeviceStreams> streams(new DeviceStreams(device));
  for (const std::uint64_t number : numbers) {
    if (number == 0) {
      streams->handles_.push_back(nullptr);
    } else if (device.simulated != nullptr) {
      streams->handles_.push_back(device.simulated->create_stream());
    } else {
      const auto stream = create_cuda_stream(device.backend->info().ordinal);
      if (!stream.ok()) return stream.error();
      streams->handles_.push_back(stream.value());
    }
  }
  return streams;
}

DeviceStreams::~DeviceStreams() {
  for (RawStream stream : handles_) {
    if (stream == nullptr) continue;
    if (device_.simulated != nullptr) {
      device_.simulated->destroy_stream(stream);
    } else {
      destroy_cuda_stream(device_.backend->info().ordinal, stream);
    }
  }
}

}  // namespace gpupool::tools
