// What exporter.discovery asks for, done: who a process is and where it serves, in a TargetFile.
//
// Thread safety: plain functions. Cost: that of TargetFile, and of sweeping its directory.
#ifndef GPUPOOL_EXPORTER_DISCOVERY_PUBLICATION_H_
#define GPUPOOL_EXPORTER_DISCOVERY_PUBLICATION_H_

#include <cstdint>
#include <memory>

#include "exporter/discovery/target_file.h"
#include "exporter/metrics/identity.h"
#include "gpupool/exporter/config.h"
#include "gpupool/status.h"

namespace gpupool::internal {

/// Requires: options.discovery.directory is not empty.
Result<std::unique_ptr<TargetFile>, Status> publish(const ExporterOptions& options,
                                                    const JobIdentity& job, std::uint16_t port);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_DISCOVERY_PUBLICATION_H_
