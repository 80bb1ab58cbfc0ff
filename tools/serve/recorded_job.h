// A recording, and the pool at each place of it, as the page asks for them.
//
// Times are milliseconds since the pool was opened: stats have a `start_unix_ns` of 0.
// Thread safety: any thread. Cost: positions.h; the history is written once.
#ifndef GPUPOOL_TOOLS_SERVE_RECORDED_JOB_H_
#define GPUPOOL_TOOLS_SERVE_RECORDED_JOB_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/replay/plan.h"
#include "tools/replay/replay.h"
#include "tools/serve/positions.h"
#include "tools/serve/recorded_endpoints.h"
#include "tools/serve/recording.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

class RecordedJob {
 public:
  /// Plays it to its end. Error: what is wrong with trace or options.
  static Result<std::unique_ptr<RecordedJob>, Status> create(Trace trace,
                                                             const ReplayOptions& options);

  const Recording& recording() const { return recording_; }
  /// Requires: this outlives them.
  RecordedSources sources();

 private:
  using Answer = Result<internal::Document, std::string>;

  RecordedJob(Trace trace, std::vector<Step> steps, Recording recording,
              const ReplayOptions& options);
  /// Looks at the place `at` of the query, the last one where none is given.
  Answer at(const internal::Query& query,
            const std::function<Answer(const Positions::View&)>& write);

  const Trace trace_;
  const std::vector<Step> steps_;
  const Recording recording_;
  Positions positions_;
  std::string pool_name_;
};

std::string recording_json(const Recording& recording);
/// The samples as columns, with `operation` before those of the history.
std::string recorded_history_json(const Recording& recording);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SERVE_RECORDED_JOB_H_
