// What the programs of several devices ask CUDA: which device and context a thread has current,
// which device an address belongs to, and scopes that make another device current for a while.
//
// A call that fails throws Broken: each step and each thread catches it at its edge and reports it.
// Thread safety: plain functions; an OnDevice and an Event belong to the thread that made them.
#ifndef GPUPOOL_TESTS_GPU_PEERS_DEVICE_CALLS_H_
#define GPUPOOL_TESTS_GPU_PEERS_DEVICE_CALLS_H_

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "gpupool/status.h"

namespace gpupool::gpu_tests {

class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void must(cudaError_t error, const char* what);
void must(const Result<void, Status>& result, const char* what);
template <class T>
T must(Result<T, Status> result, const char* what) {
  if (!result.ok()) throw Broken(std::string(what) + ": " + result.error().message);
  return std::move(result).value();
}
template <class T>
T must(Result<T> result, const char* what) {
  if (!result.ok()) throw Broken(std::string(what) + ": " + to_string(result.error()));
  return std::move(result).value();
}

/// What a thread has current. A thread that has never set a device has no context.
struct Place {
  int device = 0;
  const void* context = nullptr;
  friend bool operator==(const Place& a, const Place& b) {
    return a.device == b.device && a.context == b.context;
  }
};
std::string to_text(const Place& place);

/// Looks up what is asked of the driver itself. To be called once, before any of what follows.
void load_driver_questions();
Place current_place();
/// Empty where the runtime and the driver both say that `address` is memory of `device`; else what
/// they say.
std::string find_wrong_device(const void* address, int device);
/// Whether a kernel of `reader` can be let read memory of `owner`.
bool can_reach(int reader, int owner);

/// Another device is current in this scope; at its end the one before it is again.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

/// By which the streams of two devices are ordered.
class Event {
 public:
  explicit Event(int device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// What `later` gets from now on comes after what `earlier`, of the event's device, has got.
  void order(cudaStream_t earlier, cudaStream_t later);

 private:
  int device_ = 0;
  cudaEvent_t event_ = nullptr;
};

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_PEERS_DEVICE_CALLS_H_
