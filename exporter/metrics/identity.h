// Who this process is: the build, and its place in a distributed job as torchrun or SLURM put it
// into the environment, or as the configuration says.
//
//   what         configuration           then, the first that is set and makes sense
//   job id       exporter.job.id         SLURM_JOB_ID, TORCHELASTIC_RUN_ID (but its default, none)
//   rank         exporter.job.rank       RANK, SLURM_PROCID
//   local rank   exporter.job.local_rank LOCAL_RANK, SLURM_LOCALID
//   world size   exporter.job.world_size WORLD_SIZE, SLURM_NTASKS
//   group rank   -                       GROUP_RANK, SLURM_NODEID: which of the job's hosts
//
// A value that is no whole decimal number in its range is left out, with a note that says so.
// Thread safety: job_identity() reads the environment once, at the first call; the rest are plain
// functions. Cost: none after that.
#ifndef GPUPOOL_EXPORTER_METRICS_IDENTITY_H_
#define GPUPOOL_EXPORTER_METRICS_IDENTITY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpupool/exporter/config.h"

namespace gpupool::internal {

/// Unknown where empty.
struct JobIdentity {
  std::string job_id;
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> local_rank;
  std::optional<std::uint32_t> world_size;
  std::optional<std::uint32_t> group_rank;
};

/// The text of an environment variable, nullptr where it is not set.
using EnvironmentLookup = std::function<const char*(const char* name)>;

/// `given` goes before the environment; `notes` gets a line for each value that is left out.
JobIdentity read_identity(const JobOptions& given, const EnvironmentLookup& lookup,
                          std::vector<std::string>& notes);

/// That of this process by its environment alone.
const JobIdentity& job_identity();

/// A number as a label shows it: "" where there is none.
std::string label_text(const std::optional<std::uint32_t>& number);

std::string_view library_version() noexcept;
/// Version of the CUDA toolkit that this build uses, "none" without one.
std::string_view cuda_version() noexcept;

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_METRICS_IDENTITY_H_
