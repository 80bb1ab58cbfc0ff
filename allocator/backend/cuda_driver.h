// The driver's entry points, fetched at run time: no program of ours links libcuda, so that one
// binary runs with and without a driver. The allocator includes CUDA headers here, in
// cuda_driver.cc and in cuda_backend.cc only.
//
// Thread safety: plain data, constant once loaded. Cost: of load_cuda_driver, some milliseconds
// the first time in a process, when the driver is initialised.
#ifndef GPUPOOL_BACKEND_CUDA_DRIVER_H_
#define GPUPOOL_BACKEND_CUDA_DRIVER_H_

#include <cuda.h>
#include <cudaTypedefs.h>

#include <string>

#include "gpupool/backend.h"
#include "gpupool/status.h"

namespace gpupool::internal {

/// Named as the driver names them, without the "cu". With streams, the legacy default stream is
/// meant by handle 0.
struct CudaDriver {
  PFN_cuInit_v2000 init = nullptr;
  PFN_cuGetErrorName_v6000 get_error_name = nullptr;
  PFN_cuDriverGetVersion_v2020 driver_get_version = nullptr;
  PFN_cuDeviceGetCount_v2000 device_get_count = nullptr;
  PFN_cuDeviceGet_v2000 device_get = nullptr;
  PFN_cuDeviceGetName_v2000 device_get_name = nullptr;
  PFN_cuDeviceGetUuid_v11040 device_get_uuid = nullptr;
  PFN_cuDeviceGetPCIBusId_v4010 device_get_pci_bus_id = nullptr;
  PFN_cuDeviceGetAttribute_v2000 device_get_attribute = nullptr;
  PFN_cuDeviceCanAccessPeer_v4000 device_can_access_peer = nullptr;
  PFN_cuDevicePrimaryCtxRetain_v7000 device_primary_ctx_retain = nullptr;
  PFN_cuDevicePrimaryCtxRelease_v11000 device_primary_ctx_release = nullptr;
  PFN_cuCtxGetCurrent_v4000 ctx_get_current = nullptr;
  PFN_cuCtxPushCurrent_v4000 ctx_push_current = nullptr;
  PFN_cuCtxPopCurrent_v4000 ctx_pop_current = nullptr;
  PFN_cuCtxSynchronize_v2000 ctx_synchronize = nullptr;
  PFN_cuThreadExchangeStreamCaptureMode_v10010 thread_exchange_stream_capture_mode = nullptr;
  PFN_cuMemGetInfo_v3020 mem_get_info = nullptr;
  PFN_cuMemAlloc_v3020 mem_alloc = nullptr;
  PFN_cuMemFree_v3020 mem_free = nullptr;
  PFN_cuMemsetD8Async_v3020 memset_d8_async = nullptr;
  PFN_cuMemcpyDtoHAsync_v3020 memcpy_dtoh_async = nullptr;
  PFN_cuMemGetAllocationGranularity_v10020 mem_get_allocation_granularity = nullptr;
  PFN_cuMemAddressReserve_v10020 mem_address_reserve = nullptr;
  PFN_cuMemAddressFree_v10020 mem_address_free = nullptr;
  PFN_cuMemCreate_v10020 mem_create = nullptr;
  PFN_cuMemRelease_v10020 mem_release = nullptr;
  PFN_cuMemMap_v10020 mem_map = nullptr;
  PFN_cuMemSetAccess_v10020 mem_set_access = nullptr;
  PFN_cuMemUnmap_v10020 mem_unmap = nullptr;
  PFN_cuStreamGetId_v12000 stream_get_id = nullptr;
  PFN_cuStreamIsCapturing_v10000 stream_is_capturing = nullptr;
  PFN_cuStreamGetCaptureInfo_v10010 stream_get_capture_info = nullptr;
  PFN_cuStreamWaitEvent_v3020 stream_wait_event = nullptr;
  PFN_cuStreamSynchronize_v2000 stream_synchronize = nullptr;
  PFN_cuEventCreate_v2000 event_create = nullptr;
  PFN_cuEventDestroy_v4000 event_destroy = nullptr;
  PFN_cuEventRecord_v2000 event_record = nullptr;
  PFN_cuEventQuery_v2000 event_query = nullptr;
  PFN_cuEventSynchronize_v2000 event_synchronize = nullptr;
};

/// Fetches all entry points and initialises the driver. The error is not_supported, and says in
/// words for a person what is missing.
Result<CudaDriver, Status> load_cuda_driver();

/// Whether the device has `attribute`; false where the driver does not know it.
bool has_attribute(const CudaDriver& driver, CUdevice device, CUdevice_attribute attribute);

DeviceInfo read_device_info(const CudaDriver& driver, CUdevice device, int ordinal);

/// "CUDA_ERROR_INVALID_VALUE", or the number where the driver has no name for it.
std::string name_of(const CudaDriver& driver, CUresult result);

Error to_error(CUresult result) noexcept;

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_CUDA_DRIVER_H_
