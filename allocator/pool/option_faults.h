// What of PoolOptions contradicts itself, or asks for what the device does not have; the error
// names the option. The rest of them is checked where the pool starts (pool.cc).
//
// Thread safety: functions of their arguments, but for questions to the backend.
#ifndef GPUPOOL_POOL_OPTION_FAULTS_H_
#define GPUPOOL_POOL_OPTION_FAULTS_H_

#include <vector>

#include "gpupool/backend.h"
#include "gpupool/options.h"
#include "gpupool/status.h"

namespace gpupool::internal {

Result<void, Status> find_debug_fault(const PoolOptions& options);
Result<void, Status> find_peer_fault(const std::vector<int>& peers, Backing backing,
                                     AliasReuse alias_reuse);
Result<void, Status> find_device_fault(const PoolOptions& options, Backend& backend);

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_OPTION_FAULTS_H_
