// Why a request is refused, as the path that serves it passes it on to the report.
//
// Thread safety: plain values.
#ifndef GPUPOOL_POOL_FAULT_H_
#define GPUPOOL_POOL_FAULT_H_

#include "gpupool/failure_report.h"
#include "gpupool/status.h"

namespace gpupool::internal {

struct Fault {
  FailureCause cause = FailureCause::memory;
  Error error = Error::out_of_memory;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_FAULT_H_
