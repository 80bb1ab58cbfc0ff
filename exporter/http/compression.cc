#include "exporter/http/compression.h"

#include <zlib.h>

namespace gpupool::internal {
namespace {

constexpr int kGzipWindow = 15 + 16;  // the largest window; + 16 is zlib's way to ask for gzip
constexpr int kMemoryLevel = 8;
constexpr std::size_t kLargeBytes = std::size_t{256} << 10;

}  // namespace

std::optional<std::string> gzip(std::string_view body) {
  if (body.size() >= std::size_t{1} << 31) return std::nullopt;  // beyond one call of deflate()
  z_stream stream{};
  const int level = body.size() >= kLargeBytes ? Z_BEST_SPEED : Z_DEFAULT_COMPRESSION;
  if (deflateInit2(&stream, level, Z_DEFLATED, kGzipWindow, kMemoryLevel, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    return std::nullopt;
  }
  std::string packed(deflateBound(&stream, static_cast<uLong>(body.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));  // zlib only reads it
  stream.avail_in = static_cast<uInt>(body.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) return std::nullopt;
  return packed;
}

}  // namespace gpupool::internal
