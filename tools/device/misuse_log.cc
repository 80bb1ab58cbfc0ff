#include "tools/device/misuse_log.h"

#include <cinttypes>
#include <cstdio>

namespace gpupool::tools {

void log_misuse(const MisuseReport& report) {
  if (!report.first_of_kind) return;
  std::fprintf(stderr,
               "gpupool: misuse: %s of %p (block %p of %" PRIu64 " bytes, given %" PRIu64
               "); more of this kind are counted, not printed\n",
               to_string(report.kind), report.pointer, report.block, report.block_bytes,
               report.given);
}

}  // namespace gpupool::tools
