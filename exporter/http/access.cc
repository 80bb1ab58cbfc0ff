#include "exporter/http/access.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "exporter/base/token.h"
#include "exporter/http/socket_address.h"

namespace gpupool::internal {
namespace {

/// "name:80" -> "name", "[::1]:80" -> "::1"
std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) {  // around an IPv6 address, and nothing else
    const std::size_t end = host.find(']');
    if (end == std::string_view::npos || host.find(':') > end) return {};
    const std::string_view rest = host.substr(end + 1);
    return rest.empty() || rest.starts_with(':') ? host.substr(1, end - 1) : std::string_view();
  }
  return host.substr(0, host.find(':'));
}

bool is_loopback_address(std::string_view text) {
  const auto address = parse_address(text, 0);
  return address && address->is_loopback();
}

HttpResponse refused(int status, std::string why) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(why);
  return response;
}

}  // namespace

Result<Access, Status> Access::create(const ExporterOptions& options) {
  std::vector<Network> networks;
  for (const std::string& text : options.allow_networks) {
    auto network = parse_network(text);
    if (!network.ok()) {
      return Status{Error::invalid_argument,
                    "exporter.allow_networks: '" + text + "': " + network.error()};
    }
    networks.push_back(network.value());
  }
  auto credentials = read_credentials(options.auth);
  if (!credentials.ok()) return credentials.error();
  return Access(options, std::move(networks), std::move(credentials).value());
}

Access::Access(const ExporterOptions& options, std::vector<Network> networks,
               Credentials credentials)
    : bound_address_(options.bind),
      is_loopback_(is_loopback_address(options.bind)),
      is_page_public_(options.public_page),
      are_details_public_(options.public_details),
      host_names_(options.host_names),
      networks_(std::move(networks)),
      credentials_(std::move(credentials)) {}

bool Access::is_network_allowed(const HttpRequest& request) const {
  if (networks_.empty() || is_loopback_address(request.client)) return true;
  return std::ranges::any_of(
      networks_, [&](const Network& network) { return network.contains(request.client); });
}

bool Access::is_host_allowed(const HttpRequest& request) const {
  // Browsers always send Host; what does not is no browser.
  if (!request.host) return true;
  const std::string_view host = without_port(*request.host);
  if (std::ranges::any_of(host_names_, [&](const auto& name) { return equals(host, name); })) {
    return true;
  }
  if (is_loopback_) {
    return host == bound_address_ || is_loopback_address(host) || equals(host, "localhost");
  }
  return host_names_.empty() || parse_address(host, 0).has_value() || equals(host, "localhost");
}

std::optional<HttpResponse> Access::refusal(const HttpRequest& request,
                                            bool is_health_check) const {
  if (!is_network_allowed(request)) {
    return refused(403,
                   "your address is in none of the networks that exporter.allow_networks"
                   " names\n");
  }
  if (!is_host_allowed(request)) {
    return refused(403, is_loopback_ ? "this address is served to this machine only\n"
                                     : "this name is none of those that exporter.host_names has\n");
  }
  if (is_health_check || credentials_.is_met_by(request.authorization.value_or(""))) return {};
  HttpResponse response = refused(401, "a user and a password are needed: exporter.auth\n");
  response.headers.emplace_back("WWW-Authenticate", "Basic realm=\"gpupool\", charset=\"UTF-8\"");
  return response;
}

}  // namespace gpupool::internal
