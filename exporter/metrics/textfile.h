// The last word of a short job: a file with its metrics, in the format of node_exporter's textfile
// collector, for whoever is no longer there when Prometheus would scrape it.
//
// Written under another name and renamed, so that a reader sees the old file or the new one, whole.
// What a scrape would add as labels of the target is missing in a file: each series has the labels
// rank and job_id, where the environment has them. A file stays when its process is gone, and shows
// what that held as if it still did: gpupool_textfile_end_time_seconds says from when on it does
// not, and alert rules leave it out then.
//
// The path is absolute and ends in .prom. Whoever else may write to the folder gets no file of the
// process's user changed by it: neither name is followed where it is a symbolic link.
// Thread safety: one write at a time. Cost: about 1 ms and what the disk takes.
#ifndef GPUPOOL_EXPORTER_METRICS_TEXTFILE_H_
#define GPUPOOL_EXPORTER_METRICS_TEXTFILE_H_

#include <prometheus/metric_family.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/metrics/identity.h"
#include "gpupool/status.h"

namespace gpupool::internal {

class Textfile {
 public:
  using Collect = std::function<std::vector<prometheus::MetricFamily>()>;

  /// {rank}, {local_rank} and {pid} in `path` are those of this process; ranks that are not known
  /// are 0.
  Textfile(std::string_view path, Collect collect, const JobIdentity& identity = job_identity());

  const std::string& path() const noexcept { return path_; }
  /// Whether a file can be written there; leaves nothing.
  Result<void, Status> check() const;
  /// Errors name the path and the reason; what was there stays. What it says is so for `valid_for`
  /// from now: 0 at the end of the process.
  Result<void, Status> write(std::chrono::nanoseconds valid_for) const;

 private:
  Result<void, Status> write_beside(const std::string& beside,
                                    std::chrono::nanoseconds valid_for) const;

  std::string path_;
  Collect collect_;
  JobIdentity identity_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_METRICS_TEXTFILE_H_
