// A whole file as text, unpacked where it is gzip'd (known by its first bytes, not by its name).
//
// Thread safety: plain functions. Cost: the unpacked text in memory, at most kMaxTextBytes.
#ifndef GPUPOOL_TOOLS_TRACE_READ_FILE_H_
#define GPUPOOL_TOOLS_TRACE_READ_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "gpupool/status.h"

namespace gpupool::tools {

/// Bound of what is read, so that an endless device or a zip bomb does not eat the machine.
inline constexpr std::uint64_t kMaxTextBytes = std::uint64_t{2} << 30;

/// The message is the reason alone, without the file's name.
Result<std::string, Status> read_text_file(const std::string& path);

/// Unpacks gzip data of one or more members.
Result<std::string, Status> gunzip(std::string_view packed);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TRACE_READ_FILE_H_
