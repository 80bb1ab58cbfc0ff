// Names in HTTP headers, which mean the same in capitals and in small letters.
#ifndef GPUPOOL_EXPORTER_BASE_TOKEN_H_
#define GPUPOOL_EXPORTER_BASE_TOKEN_H_

#include <algorithm>
#include <string_view>

namespace gpupool::internal {

/// By the letters of ASCII alone. Not strncasecmp, for which a Turkish host's I is no i.
inline bool equals(std::string_view a, std::string_view b) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, small, small);
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_BASE_TOKEN_H_
