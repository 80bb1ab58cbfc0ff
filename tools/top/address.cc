#include "tools/top/address.h"

#include "tools/trace/line_reader.h"

namespace gpupool::tools {
namespace {

struct Ports {
  std::uint64_t first = kFirstPort;
  std::uint64_t last = kFirstPort;
};

bool is_port(std::string_view text, std::uint64_t& port) {
  return !text.starts_with('0') && parse_number(text, port) && port <= UINT16_MAX;
}

/// "10064", "10064-10071".
bool read_ports(std::string_view text, Ports& ports) {
  const std::size_t dash = text.find('-');
  if (!is_port(text.substr(0, dash), ports.first)) return false;
  ports.last = ports.first;
  if (dash == std::string_view::npos) return true;
  return is_port(text.substr(dash + 1), ports.last) && ports.first <= ports.last &&
         ports.last - ports.first < kMostPorts;
}

/// Where the port's colon is: not one of an IPv6 address, which stands in brackets.
std::size_t find_port(std::string_view host) {
  const std::size_t bracket = host.find(']');
  const std::size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  return colon;
}

bool is_host(std::string_view host) {
  if (host.starts_with('[')) return host.size() > 2 && host.find(']') == host.size() - 1;
  return !host.empty() && host.find_first_of("[]:/?#@ ") == std::string_view::npos;
}

}  // namespace

Result<std::vector<Address>, std::string> parse_addresses(std::string_view text) {
  const auto wrong = [text](const char* what) {
    return quote(std::string(text)) + ": " + what +
           "; such as node7:10064, node7:10064-10071 or http://[::1]:10064";
  };
  std::string_view scheme = "http://";
  std::string_view rest = text;
  if (const std::size_t end = text.find("://"); end != std::string_view::npos) {
    scheme = text.substr(0, end + 3);
    rest = text.substr(end + 3);
    if (scheme != "http://" && scheme != "https://") return wrong("it is neither http nor https");
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  std::string_view user;
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    user = rest.substr(0, at + 1);
    rest = rest.substr(at + 1);
  }
  const std::size_t colon = find_port(rest);
  const std::string_view host = rest.substr(0, colon);
  if (!is_host(host)) return wrong("there is no host in it, or more than one");
  Ports ports;
  if (colon != std::string_view::npos && !read_ports(rest.substr(colon + 1), ports)) {
    return wrong("behind the colon there is no port, and no range of up to 64 ports");
  }
  std::vector<Address> addresses;
  for (std::uint64_t port = ports.first; port <= ports.last; ++port) {
    const std::string name = std::string(host) + ":" + std::to_string(port);
    addresses.push_back({std::string(scheme) + std::string(user) + name, name});
  }
  return addresses;
}

}  // namespace gpupool::tools
