// Makes a Trace of events in order, and refuses what no program can do: freeing what is unknown
// or already freed, allocating what is live, completing what is not freed.
//
// Each call returns an empty string, or the reason why the event is refused (nothing changed).
// Thread safety: one thread. Cost: one hash look-up an event.
#ifndef GPUPOOL_TOOLS_TRACE_TRACE_BUILDER_H_
#define GPUPOOL_TOOLS_TRACE_TRACE_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpupool/status.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

/// Bounds, so that every index fits and a recorded time in nanoseconds does, too.
inline constexpr std::size_t kMaxStreams = 4096;
inline constexpr std::uint64_t kMaxBlocks = 0xffff'ffff;
inline constexpr std::uint64_t kMaxRecordedUs = std::uint64_t{1} << 53;

class TraceBuilder {
 public:
  explicit TraceBuilder(std::size_t operations_hint);

  std::string allocate(std::uint64_t id, std::uint64_t bytes, std::uint64_t stream,
                       std::uint64_t dt_us, std::size_t line);
  /// `stream`: where it is another than the allocation's.
  std::string free(std::uint64_t id, std::uint64_t dt_us, std::size_t line,
                   std::optional<std::uint64_t> stream = std::nullopt);
  std::string complete(std::uint64_t id, std::uint64_t dt_us, std::size_t line);

  /// Sum of all dt.
  std::uint64_t recorded_us() const { return recorded_us_; }
  bool is_empty() const { return trace_.operations.empty(); }
  /// Gives the trace out, its slots assigned. The builder is used up.
  Trace finish();

 private:
  enum class State : std::uint8_t { live, freed, completed };
  struct Block {
    std::uint32_t number = 0;  // from 0, in order of allocation
    std::uint16_t stream = 0;  // of its last event
    State state = State::live;
    std::size_t line = 0;            // of the last event
    std::size_t free_operation = 0;  // index, where freed
  };

  bool find_stream(std::uint64_t number, std::uint16_t& index);
  std::string advance(std::uint64_t dt_us);
  void append(OperationKind kind, const Block& block, std::uint64_t bytes, std::uint64_t dt_us);
  void assign_slots();

  Trace trace_;
  std::unordered_map<std::uint64_t, Block> blocks_;
  std::uint64_t block_count_ = 0;
  std::uint64_t recorded_us_ = 0;
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TRACE_TRACE_BUILDER_H_
