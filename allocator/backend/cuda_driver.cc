#include "backend/cuda_driver.h"

#include <cuda_runtime_api.h>

#include <array>
#include <cctype>
#include <fstream>

namespace gpupool::internal {
namespace {

/// Fetches entry points one by one and remembers the first that is missing.
class Loader {
 public:
  /// `version` is the CUDA version whose signature the type of `function` has.
  template <class Function>
  void fetch(const char* symbol, unsigned version, Function& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult query = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(symbol, &found, version, cudaEnableLegacyStream, &query);
    if (error == cudaSuccess && found != nullptr) {
      function = reinterpret_cast<Function>(found);
    } else if (missing_.empty()) {
      missing_ = symbol;
      error_ = error;
    }
  }
  const std::string& missing() const { return missing_; }
  cudaError_t error() const { return error_; }

 private:
  std::string missing_;
  cudaError_t error_ = cudaSuccess;
};

void fetch_device_calls(Loader& loader, CudaDriver& driver) {
  loader.fetch("cuInit", 2000, driver.init);
  loader.fetch("cuGetErrorName", 6000, driver.get_error_name);
  loader.fetch("cuDriverGetVersion", 2020, driver.driver_get_version);
  loader.fetch("cuDeviceGetCount", 2000, driver.device_get_count);
  loader.fetch("cuDeviceGet", 2000, driver.device_get);
  loader.fetch("cuDeviceGetName", 2000, driver.device_get_name);
  loader.fetch("cuDeviceGetUuid", 11040, driver.device_get_uuid);
  loader.fetch("cuDeviceGetPCIBusId", 4010, driver.device_get_pci_bus_id);
  loader.fetch("cuDeviceGetAttribute", 2000, driver.device_get_attribute);
  loader.fetch("cuDeviceCanAccessPeer", 4000, driver.device_can_access_peer);
  loader.fetch("cuDevicePrimaryCtxRetain", 7000, driver.device_primary_ctx_retain);
  loader.fetch("cuDevicePrimaryCtxRelease", 11000, driver.device_primary_ctx_release);
  loader.fetch("cuCtxGetCurrent", 4000, driver.ctx_get_current);
  loader.fetch("cuCtxPushCurrent", 4000, driver.ctx_push_current);
  loader.fetch("cuCtxPopCurrent", 4000, driver.ctx_pop_current);
  loader.fetch("cuCtxSynchronize", 2000, driver.ctx_synchronize);
  loader.fetch("cuThreadExchangeStreamCaptureMode", 10010,
               driver.thread_exchange_stream_capture_mode);
}

void fetch_memory_calls(Loader& loader, CudaDriver& driver) {
  loader.fetch("cuMemGetInfo", 3020, driver.mem_get_info);
  loader.fetch("cuMemAlloc", 3020, driver.mem_alloc);
  loader.fetch("cuMemFree", 3020, driver.mem_free);
  loader.fetch("cuMemsetD8Async", 3020, driver.memset_d8_async);
  loader.fetch("cuMemcpyDtoHAsync", 3020, driver.memcpy_dtoh_async);
  loader.fetch("cuMemGetAllocationGranularity", 10020, driver.mem_get_allocation_granularity);
  loader.fetch("cuMemAddressReserve", 10020, driver.mem_address_reserve);
  loader.fetch("cuMemAddressFree", 10020, driver.mem_address_free);
  loader.fetch("cuMemCreate", 10020, driver.mem_create);
  loader.fetch("cuMemRelease", 10020, driver.mem_release);
  loader.fetch("cuMemMap", 10020, driver.mem_map);
  loader.fetch("cuMemSetAccess", 10020, driver.mem_set_access);
  loader.fetch("cuMemUnmap", 10020, driver.mem_unmap);
}

void fetch_stream_calls(Loader& loader, CudaDriver& driver) {
  loader.fetch("cuStreamGetId", 12000, driver.stream_get_id);
  loader.fetch("cuStreamIsCapturing", 10000, driver.stream_is_capturing);
  loader.fetch("cuStreamGetCaptureInfo", 10010, driver.stream_get_capture_info);
  loader.fetch("cuStreamWaitEvent", 3020, driver.stream_wait_event);
  loader.fetch("cuStreamSynchronize", 2000, driver.stream_synchronize);
  loader.fetch("cuEventCreate", 2000, driver.event_create);
  loader.fetch("cuEventDestroy", 4000, driver.event_destroy);
  loader.fetch("cuEventRecord", 2000, driver.event_record);
  loader.fetch("cuEventQuery", 2000, driver.event_query);
  loader.fetch("cuEventSynchronize", 2000, driver.event_synchronize);
}

/// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as NVML and DCGM print it.
std::string print_uuid(const CUuuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

/// The version of the kernel module ("580.65.06"); where it cannot be read, that of the CUDA that
/// the driver offers.
std::string read_driver_version(const CudaDriver& driver) {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  if (file >> version) return version;
  int cuda_version = 0;
  if (driver.driver_get_version(&cuda_version) != CUDA_SUCCESS) return "unknown";
  return "CUDA " + std::to_string(cuda_version / 1000) + "." +
         std::to_string(cuda_version % 1000 / 10);
}

Status missing_driver(const Loader& loader) {
  if (loader.missing() == "cuInit") {
    std::string text =
        "no CUDA driver was found on this machine, or only one too old for this build";
    // That one says the same again.
    if (loader.error() != cudaSuccess && loader.error() != cudaErrorInsufficientDriver)
      text += std::string(" (") + cudaGetErrorString(loader.error()) + ")";
    return {Error::not_supported, text};
  }
  return {Error::not_supported,
          "the CUDA driver of this machine is too old: it has no " + loader.missing()};
}

}  // namespace

Result<CudaDriver, Status> load_cuda_driver() {
  // The runtime remembers a thread's last error until somebody asks; one of ours must not come up
  // in the host program. One that was there before stays.
  const bool was_clear = cudaPeekAtLastError() == cudaSuccess;
  Loader loader;
  CudaDriver driver;
  fetch_device_calls(loader, driver);
  fetch_memory_calls(loader, driver);
  fetch_stream_calls(loader, driver);
  if (was_clear) (void)cudaGetLastError();
  if (!loader.missing().empty()) return missing_driver(loader);
  if (const CUresult result = driver.init(0); result != CUDA_SUCCESS) {
    const std::string reason = result == CUDA_ERROR_NO_DEVICE
                                   ? "there is a CUDA driver, but no CUDA device"
                                   : "the CUDA driver does not start";
    return Status{Error::not_supported, reason + " (" + name_of(driver, result) + ")"};
  }
  return driver;
}

bool has_attribute(const CudaDriver& driver, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return driver.device_get_attribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

DeviceInfo read_device_info(const CudaDriver& driver, CUdevice device, int ordinal) {
  DeviceInfo info;
  info.ordinal = ordinal;
  info.driver = read_driver_version(driver);
  std::array<char, 256> text{};
  // What cannot be read is left empty: it is for people and labels only.
  if (driver.device_get_name(text.data(), static_cast<int>(text.size()), device) == CUDA_SUCCESS) {
    info.name = text.data();
  }
  if (driver.device_get_pci_bus_id(text.data(), static_cast<int>(text.size()), device) ==
      CUDA_SUCCESS) {
    info.pci_bus_id = text.data();
    for (char& letter : info.pci_bus_id) {
      letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
  }
  CUuuid uuid = {};
  if (driver.device_get_uuid(&uuid, device) == CUDA_SUCCESS) info.uuid = print_uuid(uuid);
  info.supports_vmm =
      has_attribute(driver, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  info.supports_shareable_handles =
      info.supports_vmm &&
      has_attribute(driver, device,
                    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  return info;
}

std::string name_of(const CudaDriver& driver, CUresult result) {
  const char* name = nullptr;
  if (driver.get_error_name(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return "CUDA error " + std::to_string(static_cast<int>(result));
}

Error to_error(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return Error::out_of_memory;
    case CUDA_ERROR_NOT_SUPPORTED: return Error::not_supported;
    default: return Error::backend_failure;
  }
}

}  // namespace gpupool::internal
