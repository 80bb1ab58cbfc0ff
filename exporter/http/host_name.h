// What a request's Host names. Bound to loopback, a server is asked for by a name of this machine,
// or a web site could read everything through a visitor's browser by pointing its own name here.
//
// Thread safety: plain functions. Cost: none to speak of.
#ifndef GPUPOOL_EXPORTER_HTTP_HOST_NAME_H_
#define GPUPOOL_EXPORTER_HTTP_HOST_NAME_H_

#include <string_view>

namespace gpupool::internal {

/// "name:80" -> "name", "[::1]:80" -> "::1"
std::string_view without_port(std::string_view host);

/// A loopback address, or localhost.
bool is_this_machine(std::string_view host);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_HOST_NAME_H_
