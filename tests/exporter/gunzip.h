// The other side of exporter/http/compression.h.
#ifndef GPUPOOL_TESTS_EXPORTER_GUNZIP_H_
#define GPUPOOL_TESTS_EXPORTER_GUNZIP_H_

#include <zlib.h>

#include <array>
#include <string>

namespace gpupool::testing_support {

/// What was packed; "?" where `packed` is not gzip's format.
inline std::string gunzip(std::string packed) {
  constexpr int kGzipWindow = 15 + 16;
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) return "?";
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string body;
  std::array<char, 65536> buffer;
  int result = Z_OK;
  while (result == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    result = inflate(&stream, Z_NO_FLUSH);
    body.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  return result == Z_STREAM_END ? body : "?";
}

}  // namespace gpupool::testing_support

#endif  // GPUPOOL_TESTS_EXPORTER_GUNZIP_H_
