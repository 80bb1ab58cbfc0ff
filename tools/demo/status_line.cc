#include "tools/demo/status_line.h"

#include <algorithm>
#include <cstdio>

#include "tools/terminal/units.h"

namespace gpupool::tools {
namespace {

using Seconds = std::chrono::duration<double>;

}  // namespace

StatusLine::StatusLine(const Pool& pool)
    : pool_(pool),
      terminal_(inspect_terminal(stdout)),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

std::chrono::seconds StatusLine::period() const {
  return std::chrono::seconds(terminal_.is_terminal ? 1 : 10);
}

void StatusLine::show(const PlayerCounts& counts) {
  // A reader of stdout that went away is no reason to stop serving; the result is not looked at.
  const std::string line = text(counts);
  if (terminal_.is_terminal) {
    const std::size_t room = terminal_.columns > 0 ? terminal_.columns - 1 : 0;
    std::fputs(("\r\033[K" + line.substr(0, room)).c_str(), stdout);
    is_open_ = true;
  } else {
    std::fputs((line + "\n").c_str(), stdout);
  }
  std::fflush(stdout);
}

void StatusLine::finish() {
  if (is_open_) std::fputs("\n", stdout);
  std::fflush(stdout);
  is_open_ = false;
}

std::string StatusLine::text(const PlayerCounts& counts) {
  const auto now = std::chrono::steady_clock::now();
  const double elapsed = std::max(Seconds(now - last_).count(), 1e-9);
  const double rate = static_cast<double>(counts.operations - last_operations_) / elapsed;
  last_ = now;
  last_operations_ = counts.operations;

  const StatsV1 stats = pool_.stats();
  const double hit_share =
      stats.requests == 0 ? 0
                          : static_cast<double>(stats.hits) / static_cast<double>(stats.requests);
  return fixed(Seconds(now - start_).count(), 0) + " s   live " +
         human_bytes(stats.live_requested_bytes) + "   held " + human_bytes(stats.held_bytes) +
         "   hits " + fixed(100 * hit_share, 2) + " %   " +
         grouped(static_cast<std::uint64_t>(rate)) + " ops/s   failed " + grouped(counts.failed) +
         "   round " + grouped(counts.rounds + 1);
}

}  // namespace gpupool::tools
