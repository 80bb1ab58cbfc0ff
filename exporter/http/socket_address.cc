#include "exporter/http/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace gpupool::internal {
namespace {

constexpr int kProbeBacklog = 1;
constexpr std::uint32_t kLoopbackNet = 127;
constexpr int kNetShift = 24;

const sockaddr_in& as_v4(const SocketAddress& address) noexcept {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}

const sockaddr_in6& as_v6(const SocketAddress& address) noexcept {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

std::uint16_t port_of(const SocketAddress& address) noexcept {
  return ntohs(address.storage.ss_family == AF_INET ? as_v4(address).sin_port
                                                    : as_v6(address).sin6_port);
}

bool is_stream(int fd) noexcept {
  int type = 0;
  socklen_t length = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

}  // namespace

bool SocketAddress::is_loopback() const noexcept {
  if (storage.ss_family == AF_INET) {
    return ntohl(as_v4(*this).sin_addr.s_addr) >> kNetShift == kLoopbackNet;
  }
  return IN6_IS_ADDR_LOOPBACK(&as_v6(*this).sin6_addr);
}

bool SocketAddress::is_any() const noexcept {
  if (storage.ss_family == AF_INET) return as_v4(*this).sin_addr.s_addr == htonl(INADDR_ANY);
  return IN6_IS_ADDR_UNSPECIFIED(&as_v6(*this).sin6_addr);
}

bool operator==(const SocketAddress& a, const SocketAddress& b) noexcept {
  if (a.storage.ss_family != b.storage.ss_family) return false;
  if (a.storage.ss_family == AF_INET) {
    return as_v4(a).sin_port == as_v4(b).sin_port &&
           as_v4(a).sin_addr.s_addr == as_v4(b).sin_addr.s_addr;
  }
  if (a.storage.ss_family == AF_INET6) {
    return as_v6(a).sin6_port == as_v6(b).sin6_port &&
           std::memcmp(&as_v6(a).sin6_addr, &as_v6(b).sin6_addr, sizeof(in6_addr)) == 0;
  }
  return false;
}

std::optional<SocketAddress> parse_address(std::string_view address, std::uint16_t port) {
  SocketAddress result;
  const std::string text(address);
  auto& v4 = reinterpret_cast<sockaddr_in&>(result.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(result.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    result.length = sizeof(sockaddr_in);
  } else if (inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    result.length = sizeof(sockaddr_in6);
  } else {
    return std::nullopt;
  }
  return result;
}

void set_port(SocketAddress& address, std::uint16_t port) noexcept {
  if (address.storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = htons(port);
  }
}

std::string endpoint_text(std::string_view address, std::uint16_t port) {
  const bool is_v6 = address.find(':') != std::string_view::npos;
  const std::string host(address);
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

int probe_port(const SocketAddress& address) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1;
  // As the server does; without it, connections of a server just stopped would block the port.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  const bool is_free = ::bind(fd, name, address.length) == 0 && ::listen(fd, kProbeBacklog) == 0;
  const int error = is_free ? 0 : errno;
  close(fd);
  return error;
}

std::vector<int> find_sockets(const SocketAddress& address, SocketKind kind) {
  std::vector<int> found;
  std::error_code ignored;  // without /proc there is nothing to find, and nothing else to do
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string name = entry.path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    int is_listening = 0;
    socklen_t length = sizeof(is_listening);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &length) != 0) continue;
    if ((is_listening != 0) != (kind == SocketKind::listening) || !is_stream(fd)) continue;
    SocketAddress bound;
    bound.length = sizeof(bound.storage);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.length) != 0) continue;
    // A connection has an address of the machine where its listener has all of them.
    if (kind == SocketKind::accepted && address.is_any() &&
        bound.storage.ss_family == address.storage.ss_family) {
      const std::uint16_t port = port_of(bound);
      bound = address;
      set_port(bound, port);
    }
    if (bound == address) found.push_back(fd);
  }
  return found;
}

std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace gpupool::internal
