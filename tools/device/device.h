// The device a command works on: a GPU where there is one, else the simulated device.
//
// Thread safety: one thread. Cost: opening a GPU takes hundreds of milliseconds the first time.
#ifndef GPUPOOL_TOOLS_DEVICE_DEVICE_H_
#define GPUPOOL_TOOLS_DEVICE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpupool/backend.h"
#include "gpupool/simulated_backend.h"
#include "gpupool/status.h"

namespace gpupool::tools {

enum class DeviceChoice : std::uint8_t { automatic, simulated, cuda };

struct Device {
  std::unique_ptr<Backend> backend;
  /// The same object, where it is simulated.
  SimulatedBackend* simulated = nullptr;
  /// Why the simulated device was taken where nobody asked for it; to be said once.
  std::string notice;
};

/// A simulated device as `options` say.
Device make_simulated_device(SimulatedDeviceOptions options);

/// Opens GPU 0 or the simulated device; `automatic` takes the latter where there is no GPU.
Result<Device, Status> open_device(
    DeviceChoice choice, SimulatedTime time,
    std::uint64_t simulated_capacity_bytes = SimulatedDeviceOptions().capacity_bytes);

/// What a simulated device refused to do, which is a fault of ours; empty where nothing.
std::string find_violation(const Device& device);

/// The driver's streams for the streams of a trace: number 0 is the default stream, every other
/// number a stream of its own. Ends them; the device outlives this.
class DeviceStreams {
 public:
  static Result<std::unique_ptr<DeviceStreams>, Status> create(
      Device& device, const std::vector<std::uint64_t>& numbers);
  ~DeviceStreams();
  DeviceStreams(const DeviceStreams&) = delete;
  DeviceStreams& operator=(const DeviceStreams&) = delete;

  const std::vector<RawStream>& handles() const { return handles_; }

 private:
  explicit DeviceStreams(Device& device) : device_(device) {}

  Device& device_;
  std::vector<RawStream> handles_;
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_DEVICE_DEVICE_H_
