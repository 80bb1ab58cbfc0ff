// Names in HTTP headers, which mean the same in capitals and in small letters.
#ifndef GPUPOOL_EXPORTER_BASE_TOKEN_H_
#define GPUPOOL_EXPORTER_BASE_TOKEN_H_

#include <strings.h>

#include <string_view>

namespace gpupool::internal {

/// For ASCII, whatever the locale says of other letters.
inline bool equals(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_BASE_TOKEN_H_
