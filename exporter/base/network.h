// A network of IP addresses, as "10.0.0.0/8", "fd00::/8" or a single address.
//
// An IPv4 address that an IPv6 socket shows as ::ffff:a.b.c.d is the IPv4 address.
// Thread safety: plain values. Cost: 16 bytes compared.
#ifndef GPUPOOL_EXPORTER_BASE_NETWORK_H_
#define GPUPOOL_EXPORTER_BASE_NETWORK_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "gpupool/status.h"

namespace gpupool::internal {

class Network {
 public:
  /// Whether `address`, a numeric one as text, lies in it; no text that is none does.
  bool contains(std::string_view address) const;

 private:
  friend Result<Network, std::string> parse_network(std::string_view text);
  std::array<std::uint8_t, 16> bytes_{};  // IPv4 as ::ffff:a.b.c.d
  int prefix_bits_ = 128;
};

/// The error says what is wrong with the text.
Result<Network, std::string> parse_network(std::string_view text);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_BASE_NETWORK_H_
