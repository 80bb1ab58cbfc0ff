#include "exporter/discovery/port_plan.h"

#include <limits>
#include <string>

namespace gpupool::internal {

Result<PortPlan, Status> plan_ports(const ExporterOptions& options,
                                    std::optional<std::uint32_t> local_rank) {
  constexpr std::uint32_t kMaxPort = std::numeric_limits<std::uint16_t>::max();
  PortPlan plan{.listen = {.address = options.bind, .port = options.port}};
  if (options.port == 0) return plan;
  const std::uint32_t rank = local_rank.value_or(0);
  const bool has_range = options.on_port_taken == OnPortTaken::next && options.port_count > 1;
  if (has_range) {
    plan.listen.port_count = options.port_count;
    // Beyond the range there is no port of its own: the first free one of it.
    if (rank < options.port_count) plan.listen.first = static_cast<std::uint16_t>(rank);
    return plan;
  }
  if (options.port + rank > kMaxPort) {
    return Status{Error::invalid_argument,
                  "cannot serve: exporter.port " + std::to_string(options.port) +
                      " and the local rank " + std::to_string(rank) + " are beyond port 65535"};
  }
  plan.listen.port = static_cast<std::uint16_t>(options.port + rank);
  plan.tries_any = options.on_port_taken == OnPortTaken::any;
  return plan;
}

Result<std::unique_ptr<HttpServer>, Status> listen(const PortPlan& plan,
                                                   const HttpHandler& handler) {
  auto server = HttpServer::start(plan.listen, handler);
  if (server.ok() || !plan.tries_any) return server;
  ListenOptions any = plan.listen;
  any.port = 0;
  return HttpServer::start(any, handler);
}

}  // namespace gpupool::internal
