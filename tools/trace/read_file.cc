#include "tools/trace/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

namespace gpupool::tools {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr int kGzipOnly = 16 + MAX_WBITS;  // zlib's way to ask for a gzip header

Status failure(std::string message) { return {Error::invalid_argument, std::move(message)}; }

class FileDescriptor {
 public:
  explicit FileDescriptor(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~FileDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

class Inflater {
 public:
  Inflater() { ready_ = inflateInit2(&stream_, kGzipOnly) == Z_OK; }
  ~Inflater() {
    if (ready_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  bool is_ready() const { return ready_; }
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
  bool ready_ = false;
};

bool is_gzip(std::string_view bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
}

Result<std::string, Status> read_all(const std::string& path) {
  const FileDescriptor file(path);
  if (file.get() < 0) return failure(std::strerror(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return failure(std::strerror(errno));
  if (S_ISDIR(status.st_mode)) return failure("is a directory");

  std::string bytes;
  // One byte more than the size, so that the read that finds the end needs no growth.
  const std::size_t first =
      status.st_size > 0 ? static_cast<std::size_t>(status.st_size) + 1 : kChunkBytes;
  std::size_t used = 0;
  for (;;) {
    if (used > kMaxTextBytes) return failure("is larger than 2 GiB");
    const std::size_t room = used == 0 ? std::min<std::size_t>(first, kMaxTextBytes) : kChunkBytes;
    if (bytes.size() < used + kChunkBytes) bytes.resize(std::max(used + room, used + kChunkBytes));
    const ssize_t count = ::read(file.get(), bytes.data() + used, bytes.size() - used);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failure(std::strerror(errno));
    if (count == 0) break;
    used += static_cast<std::size_t>(count);
  }
  bytes.resize(used);
  return bytes;
}

}  // namespace

Result<std::string, Status> gunzip(std::string_view packed) {
  if (packed.size() > std::numeric_limits<uInt>::max()) return failure("is larger than 4 GiB");
  Inflater inflater;
  if (!inflater.is_ready()) return failure("cannot unpack: zlib did not start");
  z_stream& stream = inflater.stream();
  // zlib's interface is not const-correct; it does not write to its input.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());

  std::string text;
  std::size_t used = 0;
  for (;;) {
    if (used > kMaxTextBytes) return failure("unpacks to more than 2 GiB");
    if (text.size() - used < kChunkBytes) text.resize(std::max(2 * used, used + kChunkBytes));
    const std::size_t room = std::min(text.size() - used, std::size_t{1} << 30);
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + used);
    stream.avail_out = static_cast<uInt>(room);
    const int code = inflate(&stream, Z_NO_FLUSH);
    used += room - stream.avail_out;
    if (code == Z_STREAM_END) {
      if (stream.avail_in == 0) break;
      // A file may be several members one after the other, as `cat a.gz b.gz` makes it.
      if (inflateReset(&stream) != Z_OK) return failure("damaged gzip data");
    } else if (code == Z_BUF_ERROR || (code == Z_OK && stream.avail_in == 0 && stream.avail_out)) {
      return failure("truncated gzip data: the file ends before its content does");
    } else if (code != Z_OK) {
      return failure(std::string("damaged gzip data") +
                     (stream.msg != nullptr ? std::string(": ") + stream.msg : std::string()));
    }
  }
  text.resize(used);
  return text;
}

Result<std::string, Status> read_text_file(const std::string& path) {
  Result<std::string, Status> bytes = read_all(path);
  if (!bytes.ok()) return bytes;
  if (bytes.value().empty()) return failure("is empty");
  if (!is_gzip(bytes.value())) return bytes;
  return gunzip(bytes.value());
}

}  // namespace gpupool::tools
