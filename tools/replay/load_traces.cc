#include "tools/replay/load_traces.h"

#include <cstdio>
#include <utility>

#include "tools/command_line.h"
#include "tools/terminal/progress_bar.h"

namespace gpupool::tools {

Result<std::vector<Trace>, Status> load_traces(const std::vector<std::string>& paths) {
  ProgressBar bar(stderr, paths.size());
  std::vector<Trace> traces;
  for (const std::string& path : paths) {
    bar.update("reading " + path, traces.size());
    Result<Trace, Status> trace = load_trace(path);
    if (!trace.ok()) return trace.error();
    traces.push_back(std::move(trace).value());
  }
  return traces;
}

void note_untimed(const std::vector<Trace>& traces) {
  for (const Trace& trace : traces) {
    if (trace.seconds) continue;
    print_error("--recycling-wait has no effect on " + trace.path + ", which has no recorded time");
  }
}

}  // namespace gpupool::tools
