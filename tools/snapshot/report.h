// A snapshot as text for a terminal: how much is free and in how long pieces, by state, by tag.
#ifndef GPUPOOL_TOOLS_SNAPSHOT_REPORT_H_
#define GPUPOOL_TOOLS_SNAPSHOT_REPORT_H_

#include <string>

#include "tools/snapshot/file.h"
#include "tools/terminal/terminal.h"

namespace gpupool::tools {

/// "2026-03-01 12:00:00 UTC"
std::string utc_text(std::uint64_t unix_ms);

/// The first kTagsShown tags, by live bytes; the rest is one row.
inline constexpr std::size_t kTagsShown = 8;
std::string to_text(const SnapshotFile& file, const Terminal& terminal);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SNAPSHOT_REPORT_H_
