#include "tests/gpu/peers/device_calls.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <sstream>

namespace gpupool::gpu_tests {
namespace {

// Through the runtime, so that the program starts on a machine without a driver, too.
PFN_cuCtxGetCurrent_v4000 ctx_get_current = nullptr;
PFN_cuPointerGetAttribute_v4000 pointer_get_attribute = nullptr;

template <class Function>
void look_up(Function& function, const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
  must(cudaGetDriverEntryPointByVersion(name, &found, 4000, cudaEnableDefault, &answer), name);
  if (answer != cudaDriverEntryPointSuccess) throw Broken(std::string(name) + ": not there");
  function = reinterpret_cast<Function>(found);
}

}  // namespace

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // reported here, and nobody else's
  throw Broken(std::string(what) + ": " + cudaGetErrorString(error));
}

void must(const Result<void, Status>& result, const char* what) {
  if (!result.ok()) throw Broken(std::string(what) + ": " + result.error().message);
}

std::string to_text(const Place& place) {
  std::ostringstream text;
  text << "device " << place.device << ", ";
  if (place.context == nullptr) {
    text << "no context";
  } else {
    text << "context " << place.context;
  }
  return text.str();
}

void load_driver_questions() {
  look_up(ctx_get_current, "cuCtxGetCurrent");
  look_up(pointer_get_attribute, "cuPointerGetAttribute");
}

Place current_place() {
  Place place;
  must(cudaGetDevice(&place.device), "cudaGetDevice");
  CUcontext context = nullptr;
  if (ctx_get_current(&context) != CUDA_SUCCESS) throw Broken("cuCtxGetCurrent failed");
  place.context = context;
  return place;
}

std::string find_wrong_device(const void* address, int device) {
  cudaPointerAttributes attributes = {};
  must(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes");
  int ordinal = -1;
  const CUresult asked = pointer_get_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                               reinterpret_cast<CUdeviceptr>(address));
  if (asked != CUDA_SUCCESS) {
    return "cuPointerGetAttribute answers " + std::to_string(static_cast<int>(asked));
  }
  const bool is_right =
      attributes.type == cudaMemoryTypeDevice && attributes.device == device && ordinal == device;
  if (is_right) return {};
  return "an address of device " + std::to_string(device) + " is of device " +
         std::to_string(attributes.device) + " (memory type " +
         std::to_string(static_cast<int>(attributes.type)) + ") for the runtime, of " +
         std::to_string(ordinal) + " for the driver";
}

bool can_reach(int reader, int owner) {
  if (reader == owner) return true;
  int can = 0;
  must(cudaDeviceCanAccessPeer(&can, reader, owner), "cudaDeviceCanAccessPeer");
  return can != 0;
}

OnDevice::OnDevice(int device) {
  must(cudaGetDevice(&before_), "cudaGetDevice");
  if (device != before_) must(cudaSetDevice(device), "cudaSetDevice");
}

OnDevice::~OnDevice() {
  // It was current before; where it cannot be any more, the next call says so.
  static_cast<void>(cudaSetDevice(before_));
}

Event::Event(int device) : device_(device) {
  const OnDevice on(device_);
  must(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
}

Event::~Event() {
  const OnDevice on(device_);
  static_cast<void>(cudaEventDestroy(event_));  // nothing could be done about an error
}

void Event::order(cudaStream_t earlier, cudaStream_t later) {
  must(cudaEventRecord(event_, earlier), "cudaEventRecord");
  must(cudaStreamWaitEvent(later, event_, 0), "cudaStreamWaitEvent");
}

}  // namespace gpupool::gpu_tests
