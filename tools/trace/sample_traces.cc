#include "tools/trace/sample_traces.h"

#include <filesystem>
#include <system_error>

namespace gpupool::tools {

Result<std::vector<std::string>, Status> find_sample_traces() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    return Status{Error::not_supported, "cannot find the program's folder: " + error.message()};
  }
  const fs::path folder =
      (program.parent_path() / ".." / "share" / "gpupool" / "traces").lexically_normal();
  std::vector<std::string> paths;
  for (const char* name : {"fsdp_streams-s1.trace.gz", "resnet_multiscale-s1.trace.gz"}) {
    const fs::path path = folder / name;
    if (!fs::is_regular_file(path, error)) {
      return Status{Error::invalid_argument, "no sample trace " + path.string()};
    }
    paths.push_back(path.string());
  }
  return paths;
}

}  // namespace gpupool::tools
