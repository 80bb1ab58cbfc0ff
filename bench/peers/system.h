// What a system under test offers. A concept and not a base class: the measuring loops are
// templates over it, so that no virtual call is part of what is timed.
//
//   using Stream            how the system names a stream; copied freely
//   S::open(setting)        a system that holds nothing yet, with a stream for each number
//   streams()               in the order of the setting; number 0 is the default stream
//   allocate(bytes, stream) nullptr where the request failed
//   deallocate(...)         nullptr is valid; false where the system refused
//   usage(), reset_peak()   what it holds from the driver, as far as it can say
//   end_pass()              after a pass over a trace, when nothing is live
//   empty()                 gives back what is held and not live
//   kIsMaintained           whether `advance` is called for each millisecond of recorded time
//   kMaxTraceSteps          more of a trace than this is not played: for systems so slow that a
//                           pass would take minutes
//
// Thread safety: allocate and deallocate from any thread, the rest from one.
#ifndef GPUPOOL_BENCH_PEERS_SYSTEM_H_
#define GPUPOOL_BENCH_PEERS_SYSTEM_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "gpupool/status.h"
#include "tools/device/device.h"

namespace gpupool::bench {

struct SystemSetting {
  tools::DeviceChoice device = tools::DeviceChoice::automatic;
  /// Numbers of the streams, as in a trace.
  std::vector<std::uint64_t> streams;
  /// Time stands still but for `advance`, where the system has a clock of its own.
  bool is_virtual_time = false;
};

struct Usage {
  std::optional<std::uint64_t> held_bytes;
  /// Since reset_peak(); none where the system does not keep it.
  std::optional<std::uint64_t> peak_held_bytes;
  /// Pieces of memory taken from the driver so far.
  std::optional<std::uint64_t> driver_allocations;
  /// The same with every other call that counts (map, set-access, free, ...).
  std::optional<std::uint64_t> driver_calls;
};

inline constexpr std::uint64_t kWholeTrace = std::numeric_limits<std::uint64_t>::max();

template <class S>
concept System = requires(S& system, const SystemSetting& setting, typename S::Stream stream,
                          void* pointer, std::size_t bytes, std::uint64_t ns) {
  { S::open(setting) } -> std::same_as<Result<std::unique_ptr<S>, Status>>;
  { system.streams() } -> std::same_as<const std::vector<typename S::Stream>&>;
  { system.allocate(bytes, stream) } -> std::same_as<void*>;
  { system.deallocate(pointer, bytes, stream) } -> std::same_as<bool>;
  { system.usage() } -> std::same_as<Usage>;
  system.reset_peak();
  system.advance(ns);
  system.end_pass();
  system.empty();
  { S::kIsMaintained } -> std::convertible_to<bool>;
  { S::kMaxTraceSteps } -> std::convertible_to<std::uint64_t>;
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_SYSTEM_H_
