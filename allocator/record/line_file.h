// A text file that grows by whole lines. Whatever ends it - a full disk, the end of the process -
// it ends after a whole line.
//
// Thread safety: one thread at a time. Cost: a copy a line, and a write() a buffer.
#ifndef GPUPOOL_RECORD_LINE_FILE_H_
#define GPUPOOL_RECORD_LINE_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "gpupool/status.h"

namespace gpupool::internal {

class LineFile {
 public:
  LineFile() = default;
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  /// Makes the file, or empties the one that is there. The error names path and reason. Call once.
  Result<void, Status> create(const std::string& path);

  /// Takes a line with its end. After an error lines are taken and go nowhere.
  void append(std::string_view line);
  /// Writes what was taken so far.
  void flush();
  /// Writes, closes, and says what went wrong first, naming the path.
  Result<void, Status> close();

  /// Of the file, once it is flushed.
  std::uint64_t bytes() const { return written_bytes_ + buffer_.size(); }
  bool has_failed() const { return error_ != 0; }
  /// Lines that were taken and did not come into the file; not those that begin with '#'.
  std::uint64_t lost_lines() const { return lost_lines_; }

 private:
  void fail(int error, std::string_view lost);

  std::string path_;
  std::string buffer_;
  int file_ = -1;
  int error_ = 0;  // errno
  std::uint64_t written_bytes_ = 0;
  std::uint64_t lost_lines_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_RECORD_LINE_FILE_H_
