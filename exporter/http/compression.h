// gzip for answers.
//
// Thread safety: plain functions. Cost: about 6 us a kB of metrics at level 6; large bodies are
// packed at level 1, which is five times as quick.
#ifndef GPUPOOL_EXPORTER_HTTP_COMPRESSION_H_
#define GPUPOOL_EXPORTER_HTTP_COMPRESSION_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace gpupool::internal {

/// Smaller ones gain less than a packet, and are not worth the time.
inline constexpr std::size_t kMinCompressedBytes = 4096;

/// The body in gzip's format; nothing where zlib has no memory, then it goes as it is.
std::optional<std::string> gzip(std::string_view body);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_COMPRESSION_H_
