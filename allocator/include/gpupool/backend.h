// The seam between the pool and a device's memory. Three implementations: the simulated device
// (simulated_backend.h), CUDA (cuda_backend.h), and a decorator that makes calls fail
// (faulty_backend.h).
//
// Invariants every implementation keeps:
//   held_bytes() = bytes of live physical handles (mapped or not, each once)
//                + bytes of live allocate() regions;
//   a call that fails changes nothing.
//
// Addresses are device addresses; they are dereferenced by the pool never. Bytes of VMM calls are
// multiples of granularity_bytes(). Like CUDA, unmap takes whole mappings only, a handle's offset
// in a mapping is 0, and one handle may be mapped at two addresses.
//
// Thread safety: all methods may be called from any thread at the same time. Every method leaves
// the caller's current device as it was, and must not be disturbed by, nor disturb, a stream
// capture running on any thread. Cost: see docs/DESIGN.md; micro- to milliseconds on a card.
#ifndef GPUPOOL_BACKEND_H_
#define GPUPOOL_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpupool/clock.h"
#include "gpupool/status.h"
#include "gpupool/stream.h"

namespace gpupool {

using DeviceAddress = std::uint64_t;

/// Physical memory that can be mapped (a CUmemGenericAllocationHandle). 0 is none.
struct PhysicalHandle {
  std::uint64_t value = 0;
  friend bool operator==(PhysicalHandle a, PhysicalHandle b) { return a.value == b.value; }
};

/// A point in a stream's work (a cudaEvent_t). 0 is none.
struct EventHandle {
  std::uint64_t value = 0;
  friend bool operator==(EventHandle a, EventHandle b) { return a.value == b.value; }
};

struct DeviceInfo {
  int ordinal = 0;         // as CUDA numbers devices in this process
  std::string name;        // "NVIDIA H200", "simulated"
  std::string uuid;        // "GPU-..." as NVML and DCGM print it, "SIM-..." where simulated
  std::string pci_bus_id;  // "0000:1b:00.0", empty where there is none
  std::string driver;      // driver version, "simulated" where there is none
  bool simulated = false;
  bool supports_vmm = false;
  /// create_shareable() gives handles that other processes can be given as file descriptors.
  bool supports_shareable_handles = false;
};

/// What the driver says of the device: memory of every process, not only of this one.
struct MemoryInfo {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

/// Whether a stream is being captured into a graph.
enum class CaptureState : std::uint8_t {
  none,
  active,      // this stream is being captured
  implicit,    // the legacy stream while another stream that synchronises with it is captured
  invalidated  // a capture that will end in an error
};

/// Who is told which allocations of the driver are cut into blocks, and which blocks of them are in
/// use: a tool that finds wrong accesses, for whom the whole allocation is otherwise one block.
/// Thread safety: any thread; the calls for one block come one after the other.
class BlockNotes {
 public:
  virtual ~BlockNotes() = default;
  virtual void add_heap(DeviceAddress address, std::size_t bytes) = 0;
  virtual void remove_heap(DeviceAddress address) = 0;
  virtual void add_block(DeviceAddress address, std::size_t bytes) = 0;
  virtual void remove_block(DeviceAddress address) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const DeviceInfo& info() const noexcept = 0;
  /// Size of a page: the smallest physical handle, 2 MiB on today's cards.
  virtual std::size_t granularity_bytes() const noexcept = 0;
  virtual Result<MemoryInfo> memory_info() = 0;
  /// Bytes that are held through this backend at this moment, as the device counts them.
  virtual std::uint64_t held_bytes() const noexcept = 0;
  /// The clock that the durations of this backend's calls are measured with.
  virtual const Clock& clock() const noexcept = 0;
  /// Returns once that clock shows `time_ns`. Nothing to do where the clock is real time: what has
  /// happened lies in the past. In virtual time what another thread began ends later than now.
  virtual void wait_until(std::uint64_t /*time_ns*/) {}
  /// Whether that is now or before, for every thread.
  virtual bool has_passed(std::uint64_t /*time_ns*/) const { return true; }

  // Virtual memory management.
  /// Reserves a range of addresses. `alignment` is a power of two.
  virtual Result<DeviceAddress> reserve_address(std::size_t bytes, std::size_t alignment) = 0;
  virtual Result<void> free_address(DeviceAddress address, std::size_t bytes) = 0;
  /// Creates physical memory; out_of_memory where the device has not enough.
  virtual Result<PhysicalHandle> create(std::size_t bytes) = 0;
  /// The same, to be passed to other processes and, where the device can, to network adapters: with
  /// the handle types and the RDMA flag that creation alone can give. For memory of its own.
  virtual Result<PhysicalHandle> create_shareable(std::size_t /*bytes*/) {
    return Error::not_supported;
  }
  virtual Result<void> release(PhysicalHandle handle) = 0;
  /// Maps the whole of `handle` at `address`. Not accessible until set_access.
  virtual Result<void> map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle) = 0;
  /// Makes mapped addresses readable and writable by the device; may span several mappings.
  virtual Result<void> set_access(DeviceAddress address, std::size_t bytes) = 0;
  /// The same for the device and, in the same call, for these others.
  virtual Result<void> set_shared_access(DeviceAddress /*address*/, std::size_t /*bytes*/,
                                         const std::vector<int>& /*peers*/) {
    return Error::not_supported;
  }
  /// Whether the device of that ordinal can be given access to this one's memory.
  virtual Result<bool> can_share_with(int /*peer*/) { return Error::not_supported; }
  /// Unmaps whole mappings. Does NOT wait for running work: the caller holds an event.
  virtual Result<void> unmap(DeviceAddress address, std::size_t bytes) = 0;

  // Plain allocations (cudaMalloc, cudaFree).
  virtual Result<DeviceAddress> allocate(std::size_t bytes) = 0;
  virtual Result<void> deallocate(DeviceAddress address) = 0;

  // Contents.
  /// Sets bytes on the device, in the order of `stream`. In a capture it becomes part of the graph.
  virtual Result<void> fill(DeviceAddress /*address*/, std::size_t /*bytes*/,
                            std::uint8_t /*value*/, RawStream /*stream*/) {
    return Error::not_supported;
  }
  /// Copies bytes to the host once what `stream` was given is complete, and waits for that. Not in
  /// a capture.
  virtual Result<void> read(DeviceAddress /*address*/, std::size_t /*bytes*/, void* /*to*/,
                            RawStream /*stream*/) {
    return Error::not_supported;
  }
  /// Whom to tell of blocks, so that a tool knows them; nullptr where there is nobody.
  virtual BlockNotes* block_notes() { return nullptr; }

  // Streams and events.
  /// An identity that is never given again while the process lives, unlike the handle's value.
  /// For per_thread_stream() it differs from thread to thread. Requires: the stream's capture state
  /// is `none`. CUDA refuses the question while the stream is captured, and ends that capture.
  virtual Result<std::uint64_t> stream_id(RawStream stream) = 0;
  virtual Result<CaptureState> capture_state(RawStream stream) = 0;
  /// Which capture a stream is part of, by a number that no other capture of the process has or
  /// had. Requires: its state is `active`; an error else.
  virtual Result<std::uint64_t> capture_id(RawStream stream) = 0;
  virtual Result<EventHandle> create_event() = 0;
  virtual Result<void> destroy_event(EventHandle event) = 0;
  /// Marks the work given to `stream` so far. For per_thread_stream(): the calling thread's.
  virtual Result<void> record_event(EventHandle event, RawStream stream) = 0;
  /// True when all that `event` marks is complete.
  virtual Result<bool> query_event(EventHandle event) = 0;
  /// Later work of `stream` starts after `event`.
  virtual Result<void> wait_event(RawStream stream, EventHandle event) = 0;
  /// Blocks the calling thread until `event` is complete.
  virtual Result<void> synchronize_event(EventHandle event) = 0;
  /// Blocks the calling thread until all that any stream of the device was given is complete.
  /// Requires: no stream of the device is being captured, since that would end the capture.
  virtual Result<void> synchronize_device() = 0;
};

}  // namespace gpupool

#endif  // GPUPOOL_BACKEND_H_
