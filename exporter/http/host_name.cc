#include "exporter/http/host_name.h"

#include <strings.h>

#include "exporter/http/socket_address.h"

namespace gpupool::internal {

std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    return end == std::string_view::npos ? std::string_view() : host.substr(1, end - 1);
  }
  return host.substr(0, host.find(':'));
}

bool is_this_machine(std::string_view host) {
  const auto address = parse_address(host, 0);
  if (address) return address->is_loopback();
  return host.size() == 9 && strncasecmp(host.data(), "localhost", 9) == 0;
}

}  // namespace gpupool::internal
