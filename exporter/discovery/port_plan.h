// Which ports a process of a job tries: its own, which the local rank gives, so that the same rank
// is found at the same port again; then what OnPortTaken says.
//
// Thread safety: plain functions. Cost: none; listen() that of starting a server.
#ifndef GPUPOOL_EXPORTER_DISCOVERY_PORT_PLAN_H_
#define GPUPOOL_EXPORTER_DISCOVERY_PORT_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "exporter/http/http_server.h"
#include "gpupool/exporter/config.h"
#include "gpupool/status.h"

namespace gpupool::internal {

struct PortPlan {
  ListenOptions listen;
  bool tries_any = false;  // where none of those can be had
};

/// An error where the local rank's port would be beyond 65535.
Result<PortPlan, Status> plan_ports(const ExporterOptions& options,
                                    std::optional<std::uint32_t> local_rank);

Result<std::unique_ptr<HttpServer>, Status> listen(const PortPlan& plan,
                                                   const HttpHandler& handler);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_DISCOVERY_PORT_PLAN_H_
