// How a trace is played: the pool's options and who maintains it. The settings have names, so that
// a command line and a report can speak of them.
//
// Thread safety: plain values.
#ifndef GPUPOOL_TESTS_GPU_REPLAY_SETTING_H_
#define GPUPOOL_TESTS_GPU_REPLAY_SETTING_H_

#include <string>
#include <vector>

#include "gpupool/options.h"

namespace gpupool::gpu_tests {

struct Setting {
  std::string name;
  RuntimeOptions runtime;
  /// The pool may hold little more than is requested at the peak (tight_capacity).
  bool is_tight = false;
  /// A block ends when its last use on another stream is over; only for traces that record that.
  bool honours_completions = false;
  /// The allocating thread maintains, not one beside it.
  bool maintains_inline = false;
  /// The device is kept busy for longer than the host takes, so that the host runs ahead as far as
  /// the streams' queues let it.
  bool is_behind = false;
  /// Recorded times are kept; only for traces of at most kLongestPacedSeconds.
  bool is_paced = false;
};

inline constexpr double kLongestPacedSeconds = 3;

/// In the order of a report, `off` first.
const std::vector<Setting>& settings();

/// 1 % or 32 MiB above the peak, whichever is more, in whole pages.
std::uint64_t tight_capacity(std::uint64_t peak_requested_bytes);

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_REPLAY_SETTING_H_
