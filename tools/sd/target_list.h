// The targets of a directory and of the directories in it (one a job), as Prometheus' http_sd takes
// them. A file that is no list of targets is left out, and said once.
//
// What a killed process of this host left is shown for a while, so that its target is down and an
// alert can name it, and then removed.
//
// Thread safety: any thread; one at a time reads. Cost: a read of every file at each call.
#ifndef GPUPOOL_TOOLS_SD_TARGET_LIST_H_
#define GPUPOOL_TOOLS_SD_TARGET_LIST_H_

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "exporter/discovery/target_file.h"
#include "gpupool/status.h"

namespace gpupool::tools {

class TargetList {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// `complain` is told of each file that is wrong, once.
  TargetList(std::string directory, std::chrono::nanoseconds keep,
             std::function<void(const std::string&)> complain);

  /// JSON; "[]" where there are none. An error where the directory cannot be read.
  Result<std::string, Status> read(Time now);

 private:
  bool is_to_go(const internal::FoundFile& file, Time now);

  const std::string directory_;
  const std::chrono::nanoseconds keep_;
  const std::function<void(const std::string&)> complain_;
  std::mutex mutex_;  // guards what follows
  std::map<std::string, Time> stale_since_;
  std::set<std::string> complained_;
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SD_TARGET_LIST_H_
