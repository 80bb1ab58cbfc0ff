#include "record/line_file.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gpupool::internal {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} << 10;

std::uint64_t count_events(std::string_view lines) {
  std::uint64_t count = 0;
  while (!lines.empty()) {
    if (lines[0] != '#') ++count;
    lines.remove_prefix(lines.find('\n') + 1);
  }
  return count;
}

}  // namespace

LineFile::~LineFile() {
  if (file_ >= 0) ::close(file_);
}

Result<void, Status> LineFile::create(const std::string& path) {
  path_ = path;
  buffer_.reserve(kBufferBytes);
  constexpr ::mode_t kMode = 0666;  // less what the process's umask says
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode);
  if (file_ >= 0) return {};
  return Status{Error::invalid_argument, path + ": cannot be written: " + std::strerror(errno)};
}

void LineFile::append(std::string_view line) {
  if (buffer_.size() + line.size() > kBufferBytes) flush();
  if (error_ != 0) {
    lost_lines_ += count_events(line);
  } else {
    buffer_ += line;
  }
}

void LineFile::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ::ssize_t count = ::write(file_, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      fail(count < 0 ? errno : EIO, rest);
      break;
    }
    rest.remove_prefix(static_cast<std::size_t>(count));
    written_bytes_ += static_cast<std::uint64_t>(count);
  }
  buffer_.clear();
}

void LineFile::fail(int error, std::string_view lost) {
  error_ = error;
  // What is in the file of a line that did not fit whole goes.
  const std::size_t kept = buffer_.size() - lost.size();
  const std::size_t line_end = std::string_view(buffer_).substr(0, kept).rfind('\n') + 1;
  written_bytes_ -= kept - line_end;
  lost_lines_ += count_events(std::string_view(buffer_).substr(line_end));
  // A pipe or a device cannot be cut, and has nothing to cut.
  static_cast<void>(::ftruncate(file_, static_cast<::off_t>(written_bytes_)) == 0);
}

Result<void, Status> LineFile::close() {
  if (error_ == 0) flush();
  const bool is_closed = ::close(file_) == 0;
  file_ = -1;
  // Some file systems say only now that there was no room.
  if (!is_closed && error_ == 0) error_ = errno;
  if (error_ == 0) return {};
  return Status{Error::limit_exceeded, path_ + ": cannot be written: " + std::strerror(error_) +
                                           "; it ends after " + std::to_string(written_bytes_) +
                                           " bytes"};
}

}  // namespace gpupool::internal
