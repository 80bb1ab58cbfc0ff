// What the demo says while it runs: one line that is refreshed each second on a terminal, a line
// each ten seconds elsewhere.
//
// Thread safety: one thread. Cost: a snapshot of the pool and a write.
#ifndef GPUPOOL_TOOLS_DEMO_STATUS_LINE_H_
#define GPUPOOL_TOOLS_DEMO_STATUS_LINE_H_

#include <chrono>
#include <string>

#include "gpupool/pool.h"
#include "tools/demo/player.h"
#include "tools/terminal/terminal.h"

namespace gpupool::tools {

class StatusLine {
 public:
  explicit StatusLine(const Pool& pool);

  std::chrono::seconds period() const;
  void show(const PlayerCounts& counts);
  /// Ends the line, so that something else can be written.
  void finish();

 private:
  std::string text(const PlayerCounts& counts);

  const Pool& pool_;
  Terminal terminal_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
  std::uint64_t last_operations_ = 0;
  bool is_open_ = false;  // a line stands on the terminal without its end
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_DEMO_STATUS_LINE_H_
