#include "exporter/discovery/publication.h"

#include <string>

#include "exporter/discovery/process_id.h"
#include "exporter/http/socket_address.h"

namespace gpupool::internal {
namespace {

/// Under which host Prometheus is to ask.
std::string advertised_host(const ExporterOptions& options) {
  if (!options.discovery.address.empty()) return options.discovery.address;
  const auto bound = parse_address(options.bind, 0);
  return bound && bound->is_any() ? host_name() : options.bind;
}

}  // namespace

Result<std::unique_ptr<TargetFile>, Status> publish(const ExporterOptions& options,
                                                    const JobIdentity& job, std::uint16_t port) {
  const std::string directory = expand_directory(options.discovery.directory, job);
  sweep(directory);
  return TargetFile::publish(
      directory,
      {.endpoint = endpoint_text(advertised_host(options), port), .host = host_name(), .job = job});
}

}  // namespace gpupool::internal
