#include "exporter/base/network.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <system_error>

namespace gpupool::internal {
namespace {

constexpr int kBits = 128;
constexpr int kV4Bits = 32;
constexpr int kByteBits = 8;
constexpr std::size_t kV4Offset = 12;

struct Address {
  std::array<std::uint8_t, 16> bytes{};
  bool is_v4 = false;
};

std::optional<Address> parse_numeric(std::string_view text) {
  // A zone ("fe80::1%eth0") says which interface, not which network.
  const std::string plain(text.substr(0, text.find('%')));
  if (plain.find('\0') != std::string::npos) return std::nullopt;
  Address address;
  if (inet_pton(AF_INET6, plain.c_str(), address.bytes.data()) == 1) return address;
  address.is_v4 = true;
  address.bytes[kV4Offset - 2] = address.bytes[kV4Offset - 1] = 0xff;
  if (inet_pton(AF_INET, plain.c_str(), address.bytes.data() + kV4Offset) == 1) return address;
  return std::nullopt;
}

/// The first `bits` of it, and zeros.
std::array<std::uint8_t, 16> masked(std::array<std::uint8_t, 16> bytes, int bits) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int kept = std::clamp(bits - static_cast<int>(i) * kByteBits, 0, kByteBits);
    bytes[i] = static_cast<std::uint8_t>(bytes[i] & (0xff00 >> kept));
  }
  return bytes;
}

}  // namespace

bool Network::contains(std::string_view address) const {
  const auto parsed = parse_numeric(address);
  return parsed && masked(parsed->bytes, prefix_bits_) == bytes_;
}

Result<Network, std::string> parse_network(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto address = parse_numeric(text.substr(0, slash));
  if (!address || text.find('%') != std::string_view::npos) return std::string("no address");
  const int most = address->is_v4 ? kV4Bits : kBits;
  int bits = most;
  if (slash != std::string_view::npos) {
    const std::string_view digits = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
    if (error != std::errc() || end != digits.data() + digits.size() || bits < 0 || bits > most) {
      return "no prefix length from 0 to " + std::to_string(most);
    }
  }
  Network network;
  network.prefix_bits_ = address->is_v4 ? kBits - kV4Bits + bits : bits;
  network.bytes_ = masked(address->bytes, network.prefix_bits_);
  if (network.bytes_ != address->bytes) {
    return std::string("an address inside a network, with bits set beyond the prefix");
  }
  return network;
}

}  // namespace gpupool::internal
