// Which settings are tried, and which is advised: the search behind `gpupool advise`.
//
// Strategy: coordinate descent over two coordinates, from the defaults, each setting tried once.
//   1. what is done with empty pages: off, pressure, eager at each slack, the latter two with both
//      kinds of alias_reuse; one coordinate, for none of these means anything without the others
//   2. cache_large
// from the best so far, in turn, until a turn over both changes nothing (or kMaxTurns are over).
// That is 19 settings where no other size of the caches turns out to be better, 33 or more where
// one does, instead of 75, and every setting that differs from the advised one
// in one coordinate was tried, so that the cost of each choice is known. What a pool refuses as not
// supported is left out and named.
//
// The advised one holds the least memory of those that serve every request within the budget: the
// least ratio of held to requested on the trace where it is highest, then on the mean of the
// traces, then the least waiting and driver time, the most hits in caches, the setting that moves
// less. Where none keeps to the budget, the one that waits least; where none serves every request,
// none, and what is searched for instead is the smallest capacity that would do (Need). Settings
// that failed requests are in the order of the bytes that they did not serve, not of the requests:
// who refuses a few large ones has room for many small ones, and would look the better.
//
// Thread safety: one thread, which starts its own. Cost: tens of replays of every trace, several at
// a time. The same input gives the same advice, bit for bit, whatever the number of threads.
#ifndef GPUPOOL_TOOLS_ADVISE_ADVISOR_H_
#define GPUPOOL_TOOLS_ADVISE_ADVISOR_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gpupool/status.h"
#include "tools/advise/trial.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

inline constexpr int kMaxTurns = 3;

/// The smallest capacity with which a setting serves every request of all traces.
struct Need {
  Setting setting;
  std::optional<std::uint64_t> capacity_bytes;  // none: more than kMaxCapacityBytes
};

struct Advice {
  /// By memory; those that failed requests last, by the bytes that they failed.
  std::vector<Trial> trials;
  /// Indices of `trials`.
  std::optional<std::size_t> chosen;  // none where every setting failed requests
  std::size_t defaults = 0;
  /// What would be chosen if `alias_reuse: same_stream` were allowed, where that is not, and is
  /// within the budget where the chosen is not, or holds less on the worst trace.
  std::optional<std::size_t> with_same_stream;
  /// Where none is chosen: of `off`, `pressure` and the defaults.
  std::vector<Need> needs;
  /// What the pool said of settings that it cannot have; each text once.
  std::vector<std::string> unavailable;
};

/// Requires: there is a trace; options.replay.passes is 2 at least; the defaults are not refused.
Result<Advice, ReplayFailure> advise(const std::vector<Trace>& traces, const AdviseOptions& options,
                                     SettingTester& tester);

/// The one to advise of `trials`, judged by all traces, or by `trace` alone. None where each failed
/// requests.
std::optional<std::size_t> choose(const std::vector<Trial>& trials, const AdviseOptions& options,
                                  std::optional<std::size_t> trace = {});

/// The one that needs least, the later of equals, where any does with what a device may have.
std::optional<Need> find_least(const std::vector<Need>& needs);

/// Whether allocating threads wait no longer than they may.
bool is_within_budget(const Trial& trial, const AdviseOptions& options);
/// Whether the user allowed what the setting asks of the program.
bool is_allowed(const Setting& setting, const AdviseOptions& options);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_ADVISE_ADVISOR_H_
