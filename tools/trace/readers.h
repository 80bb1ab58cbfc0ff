// The two formats behind load_trace. Each takes the unpacked text and gives a Trace without path
// and name, or the reason with its line (0: the file as a whole).
//
// Thread safety: plain functions. Cost: one pass over the text.
#ifndef GPUPOOL_TOOLS_TRACE_READERS_H_
#define GPUPOOL_TOOLS_TRACE_READERS_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "gpupool/status.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

struct ReadError {
  std::size_t line = 0;
  std::string reason;
};

/// The gpupool trace format, version 1.
Result<Trace, ReadError> read_trace_format(std::string_view text);

/// MiniMalloc's CSV: a buffer lives over the half-open interval [lower, upper). Events are put in
/// order of time, at equal times frees before allocations, else as the file has them. A buffer
/// with lower = upper lives never and makes no operation.
Result<Trace, ReadError> read_csv(std::string_view text);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TRACE_READERS_H_
