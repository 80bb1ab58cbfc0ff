// gpupool's pool as a system under test, on a GPU or on the simulated device, by either of its two
// ways in: a StreamRef made once, or the driver's stream handle at each call. Maintained in the
// measured loop at each recorded millisecond, or by a thread as in a service.
//
// Thread safety: as system.h says.
#ifndef GPUPOOL_BENCH_PEERS_GPUPOOL_SYSTEM_H_
#define GPUPOOL_BENCH_PEERS_GPUPOOL_SYSTEM_H_

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "bench/peers/system.h"
#include "gpupool/clock.h"
#include "gpupool/pool.h"

namespace gpupool::bench {

/// With the default, or with pages that stay where they are: then a warm pass needs no driver.
template <class StreamType, Recycling kRecycling = Recycling::eager>
class GpupoolSystem {
 public:
  using Stream = StreamType;
  static constexpr bool kIsMaintained = true;
  static constexpr std::uint64_t kMaxTraceSteps = kWholeTrace;

  static Result<std::unique_ptr<GpupoolSystem>, Status> open(const SystemSetting& setting);
  ~GpupoolSystem();
  GpupoolSystem(const GpupoolSystem&) = delete;
  GpupoolSystem& operator=(const GpupoolSystem&) = delete;

  const std::vector<Stream>& streams() const { return streams_; }
  void* allocate(std::size_t bytes, Stream stream) {
    return pool_->allocate(bytes, stream).value();
  }
  bool deallocate(void* pointer, std::size_t /*bytes*/, Stream stream) {
    return pool_->deallocate(pointer, stream);
  }
  Usage usage() const;
  void reset_peak() { pool_->reset_peaks(); }
  void advance(std::uint64_t ns);
  void end_pass() { pool_->drain_caches(); }
  void empty();
  Pool& pool() { return *pool_; }

 private:
  GpupoolSystem() = default;
  Result<void, Status> open_pool(bool is_virtual_time);

  tools::Device device_;
  VirtualClock clock_;  // on a GPU, whose own clock is real time
  std::unique_ptr<tools::DeviceStreams> raw_streams_;
  std::unique_ptr<Pool> pool_;
  std::vector<StreamRef> refs_;
  std::vector<Stream> streams_;
};

/// The same by StreamRef as a service runs it: a thread of its own calls Pool::maintain each
/// millisecond of real time, and the measured loop does not.
class GpupoolServed {
 public:
  using Stream = StreamRef;
  static constexpr bool kIsMaintained = false;
  static constexpr std::uint64_t kMaxTraceSteps = kWholeTrace;

  static Result<std::unique_ptr<GpupoolServed>, Status> open(const SystemSetting& setting);
  ~GpupoolServed();
  GpupoolServed(const GpupoolServed&) = delete;
  GpupoolServed& operator=(const GpupoolServed&) = delete;

  const std::vector<Stream>& streams() const { return system_->streams(); }
  void* allocate(std::size_t bytes, Stream stream) { return system_->allocate(bytes, stream); }
  bool deallocate(void* pointer, std::size_t bytes, Stream stream) {
    return system_->deallocate(pointer, bytes, stream);
  }
  Usage usage() const { return system_->usage(); }
  void reset_peak() { system_->reset_peak(); }
  void advance(std::uint64_t /*ns*/) {}
  void end_pass() { system_->end_pass(); }
  void empty() { system_->empty(); }

 private:
  GpupoolServed() = default;

  std::unique_ptr<GpupoolSystem<StreamRef>> system_;
  std::atomic<bool> is_ending_{false};
  std::thread maintainer_;
};

using GpupoolByRef = GpupoolSystem<StreamRef>;
using GpupoolByHandle = GpupoolSystem<RawStream>;
using GpupoolStaying = GpupoolSystem<StreamRef, Recycling::off>;
extern template class GpupoolSystem<StreamRef>;
extern template class GpupoolSystem<RawStream>;
extern template class GpupoolSystem<StreamRef, Recycling::off>;

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_GPUPOOL_SYSTEM_H_
