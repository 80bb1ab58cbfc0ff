#include "exporter/metrics/identity.h"

#include <cstdlib>
#include <initializer_list>

namespace gpupool::internal {
namespace {

// A label value; longer ones would be refused by the label limit of our scrape configuration.
constexpr std::size_t kMaxLength = 128;

std::string first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return std::string(value).substr(0, kMaxLength);
  }
  return {};
}

}  // namespace

const JobIdentity& job_identity() {
  // Never destroyed: a scrape may run while the program's static objects are.
  static const JobIdentity* const identity =
      new JobIdentity{.rank = first_set({"RANK", "SLURM_PROCID"}),
                      .local_rank = first_set({"LOCAL_RANK", "SLURM_LOCALID"}),
                      .world_size = first_set({"WORLD_SIZE", "SLURM_NTASKS"}),
                      .job_id = first_set({"SLURM_JOB_ID"})};
  return *identity;
}

std::string_view library_version() noexcept { return GPUPOOL_VERSION; }

std::string_view cuda_version() noexcept { return GPUPOOL_CUDA_VERSION; }

}  // namespace gpupool::internal
