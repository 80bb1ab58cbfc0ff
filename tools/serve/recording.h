// A replay watched from its start to its end: what the page draws of the whole job, and where to
// look. Places in it are operations, allocations and frees counted from 1: place n is the moment
// right after operation n, place 0 the pool as it was opened.
//
// The trace is played twice. The first pass takes a sample each `stride` operations, so that there
// are at most kMaxSamples and one, and notes failures and fallbacks exactly. The second looks at
// each operation between the samples around the peak and around the worst fragmentation. So the
// peak is exact; fragmentation that came and went between two other samples is not seen.
//
// Its birth lies on the climb to the worst, which begins where a tenth of that was last:
// where it rose most within a fiftieth of the job, from sample to sample. What rises and falls with
// each step of a job is no birth, and a rise is mostly the work of many operations, each of which
// adds a hole.
//
// Fragmentation is measured as the alerts do (StatsV1::fragmentation_ratio). Where that never
// reaches kLeastRatio, since the pool may still grow or moves its pages, it is measured by the free
// bytes outside the largest free block: what would be lost if the pool could do neither.
//
// Thread safety: plain values. Cost: two replays, and a few microseconds a sample; 300 bytes a
// sample, 24 bytes a mark.
#ifndef GPUPOOL_TOOLS_SERVE_RECORDING_H_
#define GPUPOOL_TOOLS_SERVE_RECORDING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpupool/backend.h"
#include "gpupool/status.h"
#include "tools/replay/plan.h"
#include "tools/replay/replay.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

inline constexpr std::uint64_t kMaxSamples = 1000;
inline constexpr std::size_t kMaxMarks = 500;
inline constexpr double kLeastRatio = 0.01;
inline constexpr double kLowShare = 0.1;
inline constexpr std::size_t kBirthShare = 50;  // of the job one part in so many

enum class FragmentationMeasure : std::uint8_t { ratio, split_free_bytes };
const char* to_string(FragmentationMeasure measure) noexcept;
double measure_of(FragmentationMeasure measure, const StatsV1& stats);

struct Sample {
  std::uint64_t operation = 0;
  std::uint64_t time_ns = 0;    // since the pool was opened
  std::vector<double> columns;  // as internal::history_columns() has them
};

struct Mark {
  std::uint64_t operation = 0;
  std::uint64_t time_ns = 0;
  std::uint64_t bytes = 0;  // of the request
};

/// Of the first kMaxMarks what they are; of all how many there were.
struct Marks {
  std::vector<Mark> first;
  std::uint64_t count = 0;
};

struct Moment {
  std::uint64_t operation = 0;
  std::uint64_t time_ns = 0;
  double value = 0;
};

/// The end of a rise, and its start.
struct Birth : Moment {
  std::uint64_t from_operation = 0;
  double from = 0;
};

struct Recording {
  std::string name;  // of the trace
  bool has_time = false;
  std::uint64_t operations = 0;
  std::uint64_t stride = 1;
  std::uint64_t duration_ns = 0;  // of the pool's clock
  double replay_seconds = 0;      // what one replay takes here, wall time
  std::uint64_t limit_bytes = 0;
  DeviceInfo device;
  std::vector<Sample> samples;  // place 0, each `stride`, and the last
  Marks failures;               // for want of memory or for any other reason
  Marks fallbacks;
  FragmentationMeasure measure = FragmentationMeasure::ratio;
  Moment peak_held;             // the first of the highest
  std::optional<Moment> worst;  // none: never above 0
  std::optional<Birth> birth;   // none: it never rose
};

/// Requires: `steps`, made from `trace`. `options.device` is the simulated one; `passes` and
/// `observer` are not looked at.
Result<Recording, Status> make_recording(const Trace& trace, const std::vector<Step>& steps,
                                         const ReplayOptions& options);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SERVE_RECORDING_H_
