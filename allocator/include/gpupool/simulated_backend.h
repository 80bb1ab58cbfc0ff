// A device without a card: what runs where there is no GPU, and what users' own tests run on.
//
// It keeps a device's rules and REFUSES (backend_failure, a counted violation with its text, and
// the violation handler) what would corrupt memory on a card: work on memory that unfinished work
// of another, unordered stream still uses, unmapping under running work, work on addresses that
// are not mapped and accessible, events queried or recorded by force inside a capture.
//
// Two memories: `address_only` (a 141 GB card in a test, addresses are just numbers) and `real`
// (memfd and mmap, so that double mappings and data are real; keep capacity <= 16 GiB).
// Two clocks: `virtual_time` (a call's modelled cost moves a VirtualClock, nothing sleeps) and
// `real_time` (the steady clock, and a call really takes its modelled cost).
//
// Costs are those measured on an NVIDIA H200, driver 580 (docs/DESIGN.md, "Cost model"):
// create 10.6 us to 2 MiB, 33 us at 256 MiB; map 1 us; set-access 24 us a handle; unmap 16 us;
// cudaMalloc 41 us to 985 us at 1 GiB, ...
//
// Thread safety: all methods may be called from any thread. Cost: tens to hundreds of nanoseconds
// of real time a call in virtual_time.
#ifndef GPUPOOL_SIMULATED_BACKEND_H_
#define GPUPOOL_SIMULATED_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpupool/backend.h"

namespace gpupool {

enum class SimulatedMemory : std::uint8_t { address_only, real };
enum class SimulatedTime : std::uint8_t { virtual_time, real_time };

struct SimulatedDeviceOptions {
  std::uint64_t capacity_bytes = std::uint64_t{140} << 30;
  std::uint64_t granularity_bytes = std::uint64_t{2} << 20;
  SimulatedMemory memory = SimulatedMemory::address_only;
  SimulatedTime time = SimulatedTime::virtual_time;
  /// Off: every driver call takes no modelled time, for measuring the pool alone.
  bool charge_costs = true;
  bool supports_vmm = true;
  int ordinal = 0;
  /// Devices that can be given access to this one's memory.
  std::vector<int> peers;
  /// Called for each refused operation with what was wrong; after it the call returns an error.
  std::function<void(const std::string&)> on_violation;
};

/// How long a piece of simulated work runs.
struct SimulatedWork {
  /// What it reads and writes; 0 bytes: nothing.
  DeviceAddress address = 0;
  std::uint64_t bytes = 0;
  /// Runs for this long on the device's clock; with `until_completed`, until
  /// SimulatedBackend::complete says so.
  std::uint64_t duration_ns = 0;
  bool until_completed = false;
  /// Run by the device when the work completes. Like a host function on a card, it must not call
  /// the backend.
  std::function<void()> body;
};

/// What a capture has recorded, to be launched again and again. 0: none.
struct SimulatedGraph {
  std::uint64_t value = 0;
};

class SimulatedBackend final : public Backend {
 public:
  explicit SimulatedBackend(SimulatedDeviceOptions options = {});
  ~SimulatedBackend() override;
  SimulatedBackend(const SimulatedBackend&) = delete;
  SimulatedBackend& operator=(const SimulatedBackend&) = delete;

  // The device's other side: streams and work, as a program would give them to a card.
  /// A new stream. After destroy_stream its handle value is given again, as a driver does.
  RawStream create_stream();
  /// Work already given still completes.
  void destroy_stream(RawStream stream);
  /// Gives work to `stream`; error where it would corrupt memory (see above).
  Result<void> launch(RawStream stream, SimulatedWork work);
  /// Completes all work given to `stream` so far, `until_completed` work included.
  void complete(RawStream stream);
  void complete_all();
  /// Completes the oldest `until_completed` work of `stream`; false if there is none.
  bool complete_next(RawStream stream);
  /// True when nothing of what was given to `stream` is left.
  bool is_idle(RawStream stream) const;
  void begin_capture(RawStream stream);
  /// The graph that the stream's capture has recorded; none where there was no capture, or it was
  /// invalidated.
  SimulatedGraph end_capture(RawStream stream);
  /// Gives all work of the graph, at the addresses that were captured and in the order in which it
  /// was, to `stream`; checked as any other work, before any of it is given.
  Result<void> launch_graph(SimulatedGraph graph, RawStream stream);
  /// What was launched goes on.
  void destroy_graph(SimulatedGraph graph);

  /// virtual_time only: the calls between the two are those of another, virtual thread, which goes
  /// on beside the caller. They take their time on that thread's own clock, which begins at the
  /// device's, or where its last call ended if that is later; clock() shows it meanwhile, and work
  /// completes by the device's. Must not be nested, and no other thread may be in a call.
  void begin_background();
  void end_background();
  /// Moves the device's clock (virtual_time only); work whose time has come completes.
  void advance_ns(std::uint64_t delta_ns);
  /// Memory that other processes hold on the card. Refused where more than is free.
  Result<void> set_taken_by_others(std::uint64_t bytes);
  /// Use of memory by the device of that ordinal; a violation where it was given no access.
  Result<void> access_from(int ordinal, DeviceAddress address, std::uint64_t bytes);
  /// As cudaIpcGetMemHandle: the address that the other side opens. invalid_argument for memory
  /// that is mapped, as on a card.
  Result<DeviceAddress> export_legacy(DeviceAddress address) const;
  /// As cuMemRetainAllocationHandle and cuMemExportToShareableHandle: the handle behind `address`,
  /// where it was created to be shared.
  Result<PhysicalHandle> export_handle(DeviceAddress address) const;
  /// What is registered with block_notes().
  std::uint64_t noted_heap_count() const;
  std::uint64_t noted_block_count() const;
  /// Bytes of the registered block that starts there; 0: there is none.
  std::uint64_t noted_block_bytes(DeviceAddress address) const;
  /// Violations refused so far, and the text of the last.
  std::uint64_t violation_count() const;
  std::string last_violation() const;
  /// Live handles, mappings, events and plain allocations: 0 when everything was given back.
  std::uint64_t object_count() const;

  // Backend.
  const DeviceInfo& info() const noexcept override;
  std::size_t granularity_bytes() const noexcept override;
  Result<MemoryInfo> memory_info() override;
  std::uint64_t held_bytes() const noexcept override;
  const Clock& clock() const noexcept override;
  void wait_until(std::uint64_t time_ns) override;
  bool has_passed(std::uint64_t time_ns) const override;
  Result<DeviceAddress> reserve_address(std::size_t bytes, std::size_t alignment) override;
  Result<void> free_address(DeviceAddress address, std::size_t bytes) override;
  Result<PhysicalHandle> create(std::size_t bytes) override;
  Result<PhysicalHandle> create_shareable(std::size_t bytes) override;
  Result<void> release(PhysicalHandle handle) override;
  Result<void> map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle) override;
  Result<void> set_access(DeviceAddress address, std::size_t bytes) override;
  Result<void> set_shared_access(DeviceAddress address, std::size_t bytes,
                                 const std::vector<int>& peers) override;
  Result<bool> can_share_with(int peer) override;
  Result<void> unmap(DeviceAddress address, std::size_t bytes) override;
  Result<DeviceAddress> allocate(std::size_t bytes) override;
  Result<void> deallocate(DeviceAddress address) override;
  Result<void> fill(DeviceAddress address, std::size_t bytes, std::uint8_t value,
                    RawStream stream) override;
  Result<void> read(DeviceAddress address, std::size_t bytes, void* to, RawStream stream) override;
  BlockNotes* block_notes() override;
  Result<std::uint64_t> stream_id(RawStream stream) override;
  Result<CaptureState> capture_state(RawStream stream) override;
  Result<std::uint64_t> capture_id(RawStream stream) override;
  Result<EventHandle> create_event() override;
  Result<void> destroy_event(EventHandle event) override;
  Result<void> record_event(EventHandle event, RawStream stream) override;
  Result<bool> query_event(EventHandle event) override;
  Result<void> wait_event(RawStream stream, EventHandle event) override;
  Result<void> synchronize_event(EventHandle event) override;
  /// Lets timed work end. An error where other work is left, which ends only when a test says so:
  /// a card would wait for it, perhaps for ever.
  Result<void> synchronize_device() override;

 private:
  class Device;
  std::unique_ptr<Device> device_;
};

}  // namespace gpupool

#endif  // GPUPOOL_SIMULATED_BACKEND_H_
