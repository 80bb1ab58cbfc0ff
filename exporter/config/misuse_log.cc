#include "exporter/config/misuse_log.h"

#include <cstdio>
#include <exception>

#include "gpupool/misuse_text.h"

namespace gpupool::internal {

void MisuseLog::operator()(const MisuseReport& report) const noexcept {
  if (!report.first_of_kind) return;
  try {
    const std::string line = "gpupool: misuse: " + misuse_text(report, tags_) +
                             "; further ones of this kind are only counted\n";
    std::fputs(line.c_str(), stderr);
  } catch (const std::exception&) {
    // Out of host memory. A handler must not throw, and the kind is the least that is to be said.
    std::fprintf(stderr, "gpupool: misuse: %s\n", to_string(report.kind));
  }
}

}  // namespace gpupool::internal
