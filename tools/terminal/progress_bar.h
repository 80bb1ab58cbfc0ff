// One line on a terminal that says how far a long job is; nothing where nobody watches.
//
// Thread safety: one thread. Cost: a write an update; never call it inside a timed loop.
#ifndef GPUPOOL_TOOLS_TERMINAL_PROGRESS_BAR_H_
#define GPUPOOL_TOOLS_TERMINAL_PROGRESS_BAR_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "tools/terminal/terminal.h"

namespace gpupool::tools {

class ProgressBar {
 public:
  /// Draws on `file` if that is a terminal. `total` is in any unit; the caller's.
  ProgressBar(std::FILE* file, std::uint64_t total);
  /// Wipes the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `label` says what is being done now, with `done` of the total finished.
  void update(std::string_view label, std::uint64_t done);
  /// Wipes the line, so that something else can be written.
  void clear();

 private:
  std::FILE* file_;
  Terminal terminal_;
  std::uint64_t total_;
};

/// The line that is drawn, of at most `terminal.columns` - 1 characters.
std::string progress_line(const Terminal& terminal, std::string_view label, std::uint64_t done,
                          std::uint64_t total);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TERMINAL_PROGRESS_BAR_H_
