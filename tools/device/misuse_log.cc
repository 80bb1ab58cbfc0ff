#include "tools/device/misuse_log.h"

#include <cstdio>

#include "gpupool/misuse_text.h"

namespace gpupool::tools {

void log_misuse(const MisuseReport& report) {
  if (!report.first_of_kind) return;
  std::fprintf(stderr, "gpupool: misuse: %s; further ones of this kind are only counted\n",
               misuse_text(report).c_str());
}

}  // namespace gpupool::tools
