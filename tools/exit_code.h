// How every gpupool command ends.
#ifndef GPUPOOL_TOOLS_EXIT_CODE_H_
#define GPUPOOL_TOOLS_EXIT_CODE_H_

namespace gpupool::tools {

enum class ExitCode : int {
  finished = 0,        // also where allocations failed: that is data
  internal_error = 1,  // ours; never the user's input
  usage = 2,           // command line, input file, configuration or device; stdout is empty
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_EXIT_CODE_H_
