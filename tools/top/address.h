// What `gpupool top` is given: where exporters answer.
//
// Thread safety: plain functions. Cost: strings.
#ifndef GPUPOOL_TOOLS_TOP_ADDRESS_H_
#define GPUPOOL_TOOLS_TOP_ADDRESS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpupool/status.h"

namespace gpupool::tools {

/// The first port of a host's ranks (exporter.port of configs/gpupool.yaml).
inline constexpr std::uint16_t kFirstPort = 10064;
/// More ports than one host has ranks are a typing mistake.
inline constexpr std::uint64_t kMostPorts = 64;

struct Address {
  std::string base;  // "http://node7:10064", with a user's name and password if they were given
  std::string name;  // "node7:10064", to be shown
};

/// "node7", "node7:10064", "node7:10064-10071", "http://user:word@node7:10064", "[::1]:10064",
/// "https://proxy:443". Without a port: kFirstPort. The error says what is wrong with the text.
Result<std::vector<Address>, std::string> parse_addresses(std::string_view text);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TOP_ADDRESS_H_
