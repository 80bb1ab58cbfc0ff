// This process as a target of Prometheus: one file of the form that file_sd reads, in a directory
// that the processes of a job share, for as long as this one serves.
//
//   DIRECTORY/HOST-PID.json
//   [{"targets":["10.0.0.7:10064"],"labels":{"job_id":"4711","rank":"12",...,"host":"node3"}}]
//
// Written beside and renamed, so that no reader sees half a file. Removed at a clean end; what a
// process that was killed leaves stays, so that its target is shown as down, until sweep() finds
// that no process of this host is the one that the file names: by number, start and boot. Files
// of other hosts, and of other name spaces of processes, are left to those.
//
// Thread safety: publish and destroy on one thread. A forked child removes nothing. Cost: a few
// system calls; nothing meanwhile.
#ifndef GPUPOOL_EXPORTER_DISCOVERY_TARGET_FILE_H_
#define GPUPOOL_EXPORTER_DISCOVERY_TARGET_FILE_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "exporter/metrics/identity.h"
#include "gpupool/status.h"

namespace gpupool::internal {

struct Target {
  std::string endpoint;  // "10.0.0.7:10064"
  std::string host;
  JobIdentity job;
};

class TargetFile {
 public:
  /// Makes the directory where there is none, as the process's umask says. The error names the path
  /// and the reason. A directory that everybody may write to, and remove from, is refused.
  static Result<std::unique_ptr<TargetFile>, Status> publish(const std::string& directory,
                                                             const Target& target);
  ~TargetFile();
  TargetFile(const TargetFile&) = delete;
  TargetFile& operator=(const TargetFile&) = delete;

  const std::string& path() const noexcept { return path_; }

 private:
  explicit TargetFile(std::string path);

  const std::string path_;
  const pid_t owner_;
};

/// One file of a directory, as it is now.
struct FoundFile {
  std::string path;
  std::string text;
  bool is_stale = false;  // its process has ended without removing it
};
/// The files that are meant for Prometheus, by rising name. Larger ones than 64 KiB and what is no
/// plain file are left out. An error where the directory cannot be read.
Result<std::vector<FoundFile>, Status> find_target_files(const std::string& directory);

/// Removes `file`, unless another has come to be at its path.
bool remove_stale(const FoundFile& file);

/// Removes what processes of this host have left in `directory`; gives how many files those were.
std::size_t sweep(const std::string& directory);

/// `pattern` with {job_id} and {uid} put in.
std::string expand_directory(const std::string& pattern, const JobIdentity& job);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_DISCOVERY_TARGET_FILE_H_
