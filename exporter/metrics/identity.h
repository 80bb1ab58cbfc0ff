// Who this process is: the build, and its place in a distributed job as torchrun or SLURM put it
// into the environment.
//
// Thread safety: the environment is read once, at the first call. Cost: none after that.
#ifndef GPUPOOL_EXPORTER_METRICS_IDENTITY_H_
#define GPUPOOL_EXPORTER_METRICS_IDENTITY_H_

#include <string>
#include <string_view>

namespace gpupool::internal {

/// Empty where the environment does not say.
struct JobIdentity {
  std::string rank;        // RANK, SLURM_PROCID
  std::string local_rank;  // LOCAL_RANK, SLURM_LOCALID
  std::string world_size;  // WORLD_SIZE, SLURM_NTASKS
  std::string job_id;      // SLURM_JOB_ID
};

const JobIdentity& job_identity();

std::string_view library_version() noexcept;
/// Version of the CUDA toolkit that this build uses, "none" without one.
std::string_view cuda_version() noexcept;

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_METRICS_IDENTITY_H_
