// A recorded run as operations: what `gpupool replay` and `gpupool demo` play.
//
// Read from one of two formats, plain or gzip'd, told apart by their content:
//   gpupool trace, version 1      a ID BYTES STREAM DT | f ID DT [STREAM] | c ID DT, '#' lines
//                                 optional
//   MiniMalloc CSV                header id,lower,upper,size in any order; [lower, upper)
// docs: tools/README.md.
//
// Invariants of a Trace that load_trace returned:
//   every slot is allocated, then freed at most once, then completed at most once, before it is
//   allocated again; a slot is used again only after the last operation of its block;
//   slot < slot_count, stream < streams.size(), there is at least one operation.
//
// Thread safety: plain values. Cost: 24 bytes an operation; about 10 million lines a second.
#ifndef GPUPOOL_TOOLS_TRACE_TRACE_H_
#define GPUPOOL_TOOLS_TRACE_TRACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpupool/status.h"

namespace gpupool::tools {

enum class OperationKind : std::uint8_t {
  allocate,
  free,      // the program lets go of the block
  complete,  // its last use on another stream is over; only where that came after the free
};

struct Operation {
  std::uint64_t bytes = 0;  // of an allocation, as the program asked
  std::uint64_t dt_us = 0;  // recorded time since the operation before
  std::uint32_t slot = 0;   // where the block's address is kept
  /// Index into Trace::streams: that the block was allocated on; of a free, and what completes it,
  /// that it was freed on, mostly the same.
  std::uint16_t stream = 0;
  OperationKind kind = OperationKind::allocate;
  bool completes_later = false;  // of a free: a `complete` of this block follows
};

struct Trace {
  std::string path;  // as it was given
  std::string name;  // the file's name without folders and extensions
  std::vector<Operation> operations;
  /// Numbers of the streams as the file has them; 0 is the default stream.
  std::vector<std::uint64_t> streams;
  std::uint32_t slot_count = 0;
  /// Allocations and frees: what replays count, and time is divided by.
  std::uint64_t operation_count = 0;
  /// The recorded run's duration: the header's, else the sum of DT; none for CSV.
  std::optional<double> seconds;
};

/// Reads and checks `path`. The message is a whole line for a person: "FILE:LINE: reason".
Result<Trace, Status> load_trace(const std::string& path);

/// The same for text that is already in memory; `path` is only named in errors.
Result<Trace, Status> parse_trace(const std::string& path, std::string_view text);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TRACE_TRACE_H_
