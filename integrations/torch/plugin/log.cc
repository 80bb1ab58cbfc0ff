#include "integrations/torch/plugin/log.h"

#include <unistd.h>

#include <string>

namespace gpupool::torch {

void log_line(std::string_view text) noexcept {
  try {
    constexpr std::string_view kName = "gpupool: ";
    std::string line(text.starts_with(kName) ? "" : kName);
    line.append(text).append("\n");
    // Where standard error is closed there is nobody to tell.
    static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  } catch (...) {
    // No host memory for a line: the counters say the rest.
  }
}

}  // namespace gpupool::torch
