// Addresses to serve on: what an address is, whether it is only this machine's, and whether a port
// of it can be had.
//
// Thread safety: plain functions. Cost: a system call or two.
#ifndef GPUPOOL_EXPORTER_HTTP_SOCKET_ADDRESS_H_
#define GPUPOOL_EXPORTER_HTTP_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpupool::internal {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  /// 127.0.0.0/8 or ::1.
  bool is_loopback() const noexcept;
  /// 0.0.0.0 or ::, all addresses of the machine.
  bool is_any() const noexcept;
  friend bool operator==(const SocketAddress& a, const SocketAddress& b) noexcept;
};

/// An IPv4 or IPv6 address as text; nothing for a name.
std::optional<SocketAddress> parse_address(std::string_view address, std::uint16_t port);

void set_port(SocketAddress& address, std::uint16_t port) noexcept;

/// "127.0.0.1:10064", "[::1]:10064"
std::string endpoint_text(std::string_view address, std::uint16_t port);

/// 0 where the port can be bound and listened on now, else the errno.
int probe_port(const SocketAddress& address);

enum class SocketKind : std::uint8_t { listening, accepted };

/// This process's sockets that listen on `address`, or that a listener there has accepted.
std::vector<int> find_sockets(const SocketAddress& address, SocketKind kind);

/// The text of an errno.
std::string errno_text(int error);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_SOCKET_ADDRESS_H_
