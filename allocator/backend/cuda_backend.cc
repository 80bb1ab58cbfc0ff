// The CUDA device: the driver API behind the Backend interface.
//
// Every call runs in a DriverScope. Nothing here calls the runtime, whose last error would come up
// in the host program. What the caller's thread had current, and its capture mode, are as before.
#include "gpupool/cuda_backend.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "backend/cuda_driver.h"
#include "backend/ledger.h"
#include "backend/nvtx_notes.h"
#include "gpupool/process.h"

namespace gpupool {
namespace internal {
namespace {

// Note [When the driver must not be touched]
// A forked child inherits our memory but no driver: each call there fails in undefined ways. And
// once the process has begun to exit, static destructors of others may have taken the driver
// down, which it may also say itself (CUDA_ERROR_DEINITIALIZED). All of that turns it off, and
// every call then fails without the driver being asked.
std::atomic<bool> is_driver_down{false};
constexpr std::uint64_t kNotYet = ~std::uint64_t{0};
std::atomic<std::uint64_t> epoch_of_first_use{kNotYet};  // process_epoch()

bool is_driver_off() {
  if (is_driver_down.load(std::memory_order_relaxed)) return true;
  const std::uint64_t epoch = epoch_of_first_use.load(std::memory_order_relaxed);
  return epoch != kNotYet && epoch != process_epoch() &&
         process_state_since(static_cast<std::uint32_t>(epoch)) != ProcessState::same;
}

void turn_driver_off() { is_driver_down.store(true, std::memory_order_relaxed); }

/// Makes a context current and captures of this thread undisturbed, and undoes both at its end.
class DriverScope {
 public:
  DriverScope(const CudaDriver& driver, CUcontext context) : driver_(driver) {
    if (is_driver_off()) return;
    // In the default mode, calls that a capture on any thread deems unsafe (create, free, event
    // query) would fail and invalidate it.
    if (driver_.thread_exchange_stream_capture_mode(&mode_) != CUDA_SUCCESS) return;
    has_exchanged_ = true;
    CUcontext current = nullptr;
    if (driver_.ctx_get_current(&current) != CUDA_SUCCESS) return;
    if (current != context) {
      if (driver_.ctx_push_current(context) != CUDA_SUCCESS) return;
      has_pushed_ = true;
    }
    is_open_ = true;
  }
  ~DriverScope() {
    // Undoing what succeeded above fails only where the driver is going down, and with it the
    // state that would have to be restored.
    CUcontext popped = nullptr;
    if (has_pushed_) (void)driver_.ctx_pop_current(&popped);
    if (has_exchanged_) (void)driver_.thread_exchange_stream_capture_mode(&mode_);
  }
  DriverScope(const DriverScope&) = delete;
  DriverScope& operator=(const DriverScope&) = delete;

  bool is_open() const { return is_open_; }

 private:
  const CudaDriver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool has_exchanged_ = false;
  bool has_pushed_ = false;
  bool is_open_ = false;
};

Result<void> to_result(CUresult result) {
  if (result == CUDA_SUCCESS) return {};
  // It has gone before us: see the note above. Nothing that it gave is there any more.
  if (result == CUDA_ERROR_DEINITIALIZED) turn_driver_off();
  return to_error(result);
}

CUevent as_event(EventHandle event) { return reinterpret_cast<CUevent>(event.value); }

class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaDriver& driver, CUdevice device, CUcontext context, DeviceInfo info,
              std::size_t granularity_bytes)
      : driver_(driver),
        device_(device),
        context_(context),
        info_(std::move(info)),
        granularity_bytes_(granularity_bytes) {}

  ~CudaBackend() override {
    // A driver that is already down (CUDA_ERROR_DEINITIALIZED) has released everything itself.
    if (!is_driver_off()) (void)driver_.device_primary_ctx_release(device_);
  }

  const DeviceInfo& info() const noexcept override { return info_; }
  std::size_t granularity_bytes() const noexcept override { return granularity_bytes_; }
  std::uint64_t held_bytes() const noexcept override { return ledger_.held_bytes(); }
  const Clock& clock() const noexcept override { return steady_clock(); }

  Result<MemoryInfo> memory_info() override {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    const auto result = call([&] { return driver_.mem_get_info(&free_bytes, &total_bytes); });
    if (!result) return result.error();
    return MemoryInfo{.free_bytes = free_bytes, .total_bytes = total_bytes};
  }

  Result<DeviceAddress> reserve_address(std::size_t bytes, std::size_t alignment) override {
    const bool is_power_of_two = alignment != 0 && (alignment & (alignment - 1)) == 0;
    if (!is_whole_pages(bytes) || !is_power_of_two) return Error::invalid_argument;
    CUdeviceptr address = 0;
    const auto result = call([&] {
      return driver_.mem_address_reserve(&address, bytes, std::max(alignment, granularity_bytes_),
                                         0, 0);
    });
    if (!result) return result.error();
    return DeviceAddress{address};
  }

  Result<void> free_address(DeviceAddress address, std::size_t bytes) override {
    if (!is_whole_pages(bytes) || ledger_.has_mappings(address, bytes)) {
      return Error::invalid_argument;
    }
    return call([&] { return driver_.mem_address_free(address, bytes); });
  }

  Result<PhysicalHandle> create(std::size_t bytes) override {
    return create(bytes, allocation_properties(device_));
  }

  Result<PhysicalHandle> create_shareable(std::size_t bytes) override {
    if (!info_.supports_shareable_handles) return Error::not_supported;
    CUmemAllocationProp properties = allocation_properties(device_);
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    // Creation fails where the flag is set and the device cannot.
    if (has_attribute(driver_, device_,
                      CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)) {
      properties.allocFlags.gpuDirectRDMACapable = 1;
    }
    return create(bytes, properties);
  }

  Result<void> release(PhysicalHandle handle) override {
    const auto taken = ledger_.take_handle(handle);
    if (!taken) return Error::invalid_argument;
    const auto result = call([&] { return driver_.mem_release(handle.value); });
    if (result) {
      ledger_.finish(*taken);
    } else {
      ledger_.restore(*taken);
    }
    return result;
  }

  Result<void> map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle) override {
    if (!ledger_.add_mapping(address, bytes, handle)) return Error::invalid_argument;
    const auto result = call([&] { return driver_.mem_map(address, bytes, 0, handle.value, 0); });
    if (!result) ledger_.finish(ledger_.take_mappings(address, bytes));
    return result;
  }

  Result<void> set_access(DeviceAddress address, std::size_t bytes) override {
    if (!ledger_.is_mapped(address, bytes)) return Error::invalid_argument;
    const CUmemAccessDesc access = access_of(device_);
    return call([&] { return driver_.mem_set_access(address, bytes, &access, 1); });
  }

  Result<void> set_shared_access(DeviceAddress address, std::size_t bytes,
                                 const std::vector<int>& peers) override {
    if (!ledger_.is_mapped(address, bytes)) return Error::invalid_argument;
    std::vector<CUmemAccessDesc> access{access_of(device_)};
    return call([&] {
      for (const int ordinal : peers) {
        CUdevice peer = 0;
        const CUresult found = driver_.device_get(&peer, ordinal);
        if (found != CUDA_SUCCESS) return found;
        access.push_back(access_of(peer));
      }
      return driver_.mem_set_access(address, bytes, access.data(), access.size());
    });
  }

  Result<bool> can_share_with(int ordinal) override {
    int can = 0;
    const auto result = call([&] {
      CUdevice peer = 0;
      const CUresult found = driver_.device_get(&peer, ordinal);
      if (found != CUDA_SUCCESS) return found;
      return driver_.device_can_access_peer(&can, peer, device_);
    });
    if (!result) return result.error();
    return can != 0;
  }

  Result<void> unmap(DeviceAddress address, std::size_t bytes) override {
    std::vector<Ledger::Mapping> left = ledger_.take_mappings(address, bytes);
    if (left.empty()) return Error::invalid_argument;
    std::vector<Ledger::Mapping> unmapped;
    // One by one, since the driver promises nothing for a range of several mappings; the cost is
    // per mapping either way. Where it refuses one, what was unmapped before stays so.
    const auto result = call([&] {
      while (!left.empty()) {
        const Ledger::Mapping mapping = left.back();
        const CUresult one = driver_.mem_unmap(mapping.address, mapping.bytes);
        if (one != CUDA_SUCCESS) return one;
        left.pop_back();
        unmapped.push_back(mapping);
      }
      return CUDA_SUCCESS;
    });
    ledger_.restore(left);
    ledger_.finish(unmapped);
    return result;
  }

  Result<DeviceAddress> allocate(std::size_t bytes) override {
    if (bytes == 0) return Error::invalid_argument;
    CUdeviceptr address = 0;
    const auto result = call([&] { return driver_.mem_alloc(&address, bytes); });
    if (!result) return result.error();
    ledger_.add_plain(address, rounded_plain_bytes(bytes));
    return DeviceAddress{address};
  }

  Result<void> deallocate(DeviceAddress address) override {
    const auto bytes = ledger_.take_plain(address);
    if (!bytes) return Error::invalid_argument;
    const auto result = call([&] { return driver_.mem_free(address); });
    if (result) {
      ledger_.finish_plain(*bytes);
    } else {
      ledger_.restore_plain(address, *bytes);
    }
    return result;
  }

  Result<void> fill(DeviceAddress address, std::size_t bytes, std::uint8_t value,
                    RawStream stream) override {
    return call([&] { return driver_.memset_d8_async(address, value, bytes, stream); });
  }

  Result<void> read(DeviceAddress address, std::size_t bytes, void* to, RawStream stream) override {
    return call([&] {
      const CUresult copied = driver_.memcpy_dtoh_async(to, address, bytes, stream);
      return copied == CUDA_SUCCESS ? driver_.stream_synchronize(stream) : copied;
    });
  }

  BlockNotes* block_notes() override { return &notes_; }

  Result<std::uint64_t> stream_id(RawStream stream) override {
    unsigned long long id = 0;
    const auto result = ask([&] { return driver_.stream_get_id(stream, &id); }, stream);
    if (!result) return result.error();
    return std::uint64_t{id};
  }

  Result<CaptureState> capture_state(RawStream stream) override {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    bool is_implicit = false;
    const auto result = ask(
        [&] {
          const CUresult answer = driver_.stream_is_capturing(stream, &status);
          is_implicit = answer == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
          return is_implicit ? CUDA_SUCCESS : answer;
        },
        stream);
    if (!result) return result.error();
    if (is_implicit) return CaptureState::implicit;
    switch (status) {
      case CU_STREAM_CAPTURE_STATUS_NONE: return CaptureState::none;
      case CU_STREAM_CAPTURE_STATUS_ACTIVE: return CaptureState::active;
      case CU_STREAM_CAPTURE_STATUS_INVALIDATED: return CaptureState::invalidated;
    }
    return Error::backend_failure;
  }

  Result<std::uint64_t> capture_id(RawStream stream) override {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    const auto result =
        ask([&] { return driver_.stream_get_capture_info(stream, &status, &id); }, stream);
    if (!result) return result.error();
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return Error::invalid_argument;
    return std::uint64_t{id};
  }

  Result<EventHandle> create_event() override {
    CUevent event = nullptr;
    const auto result = call([&] { return driver_.event_create(&event, CU_EVENT_DISABLE_TIMING); });
    if (!result) return result.error();
    return EventHandle{reinterpret_cast<std::uint64_t>(event)};
  }

  Result<void> destroy_event(EventHandle event) override {
    if (event.value == 0) return Error::invalid_argument;
    return call([&] { return driver_.event_destroy(as_event(event)); });
  }

  Result<void> record_event(EventHandle event, RawStream stream) override {
    if (event.value == 0) return Error::invalid_argument;
    return call([&] { return driver_.event_record(as_event(event), stream); });
  }

  Result<bool> query_event(EventHandle event) override {
    if (event.value == 0) return Error::invalid_argument;
    bool is_done = false;
    const auto result = call([&] {
      const CUresult answer = driver_.event_query(as_event(event));
      is_done = answer == CUDA_SUCCESS;
      return answer == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : answer;
    });
    if (!result) return result.error();
    return is_done;
  }

  Result<void> wait_event(RawStream stream, EventHandle event) override {
    if (event.value == 0) return Error::invalid_argument;
    return call([&] { return driver_.stream_wait_event(stream, as_event(event), 0); });
  }

  Result<void> synchronize_event(EventHandle event) override {
    if (event.value == 0) return Error::invalid_argument;
    return call([&] { return driver_.event_synchronize(as_event(event)); });
  }

  // The primary context has all that the runtime's streams are given. During a capture the CUDA
  // programming guide calls it invalid ("a broader handle which encompasses an active stream
  // capture"), whatever the thread's capture mode.
  Result<void> synchronize_device() override {
    return call([&] { return driver_.ctx_synchronize(); });
  }

  /// What every physical handle is: memory of the device, not shared with other processes.
  static CUmemAllocationProp allocation_properties(CUdevice device) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
  }

 private:
  static CUmemAccessDesc access_of(CUdevice device) {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return access;
  }

  Result<PhysicalHandle> create(std::size_t bytes, const CUmemAllocationProp& properties) {
    if (!is_whole_pages(bytes)) return Error::invalid_argument;
    CUmemGenericAllocationHandle created = 0;
    const auto result = call([&] { return driver_.mem_create(&created, bytes, &properties, 0); });
    if (!result) return result.error();
    const PhysicalHandle handle{created};
    ledger_.add_handle(handle, bytes);
    return handle;
  }

  template <class Body>
  Result<void> call(Body&& body) {
    const DriverScope scope(driver_, context_);
    if (!scope.is_open()) return Error::backend_failure;
    return to_result(body());
  }

  /// For questions about a stream that each call by its handle asks: no capture mode forbids them,
  /// and a handle of its own (not one of the two that stand for a default stream) names its context
  /// itself, so that the scope would only double their cost.
  template <class Body>
  Result<void> ask(Body&& body, RawStream stream) {
    const bool is_default = reinterpret_cast<std::uintptr_t>(stream) <=
                            reinterpret_cast<std::uintptr_t>(per_thread_stream());
    if (is_default) return call(body);
    if (is_driver_off()) return Error::backend_failure;
    return to_result(body());
  }

  bool is_whole_pages(std::size_t bytes) const {
    return bytes != 0 && bytes % granularity_bytes_ == 0;
  }
  /// The driver does not say what a small allocation takes; it is counted in units of 512 bytes.
  static std::uint64_t rounded_plain_bytes(std::size_t bytes) {
    return (std::uint64_t{bytes} + 511) & ~std::uint64_t{511};
  }

  const CudaDriver driver_;
  const CUdevice device_;
  const CUcontext context_;
  const DeviceInfo info_;
  const std::size_t granularity_bytes_;
  Ledger ledger_;
  NvtxNotes notes_;
};

/// 2 MiB where the device cannot say, since it then maps nothing.
std::size_t read_granularity(const CudaDriver& driver, CUdevice device, bool supports_vmm) {
  constexpr std::size_t kUsual = std::size_t{2} << 20;
  if (!supports_vmm) return kUsual;
  const CUmemAllocationProp properties = CudaBackend::allocation_properties(device);
  std::size_t bytes = 0;
  const CUresult result =
      driver.mem_get_allocation_granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  return result == CUDA_SUCCESS && bytes != 0 ? bytes : kUsual;
}

Status refused(const CudaDriver& driver, int ordinal, CUresult result) {
  const Error code =
      result == CUDA_ERROR_OUT_OF_MEMORY ? Error::out_of_memory : Error::not_supported;
  return {code, "CUDA device " + std::to_string(ordinal) + " cannot be opened (" +
                    name_of(driver, result) + ")"};
}

}  // namespace
}  // namespace internal

Result<std::unique_ptr<Backend>, Status> open_cuda_backend(int ordinal) {
  using namespace internal;
  if (is_driver_off()) {
    return Status{Error::not_supported,
                  "CUDA cannot be used in a forked child, nor while the process exits"};
  }
  Result<CudaDriver, Status> loaded = load_cuda_driver();
  if (!loaded) return loaded.error();
  const CudaDriver& driver = loaded.value();
  int count = 0;
  if (const CUresult result = driver.device_get_count(&count); result != CUDA_SUCCESS) {
    return refused(driver, ordinal, result);
  }
  if (ordinal < 0 || ordinal >= count) {
    return Status{Error::not_supported, "there is no CUDA device " + std::to_string(ordinal) +
                                            "; this process sees " + std::to_string(count)};
  }
  watch_process();
  std::uint64_t none = kNotYet;
  epoch_of_first_use.compare_exchange_strong(none, process_epoch(), std::memory_order_relaxed);
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUresult result = driver.device_get(&device, ordinal);
  if (result == CUDA_SUCCESS) result = driver.device_primary_ctx_retain(&context, device);
  if (result != CUDA_SUCCESS) return refused(driver, ordinal, result);
  DeviceInfo info = read_device_info(driver, device, ordinal);
  const std::size_t granularity = read_granularity(driver, device, info.supports_vmm);
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(driver, device, context, std::move(info), granularity));
}

}  // namespace gpupool
