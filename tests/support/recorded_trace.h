// A trace that a pool has recorded, read without the tools: its events and remarks, and whether it
// is one. And where tests put such files.
//
// Thread safety: plain values and functions.
#ifndef GPUPOOL_TESTS_SUPPORT_RECORDED_TRACE_H_
#define GPUPOOL_TESTS_SUPPORT_RECORDED_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace gpupool {

struct RecordedEvent {
  char kind = 'a';  // or 'f'
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;   // of its block
  std::uint64_t stream = 0;  // of this event
  std::uint64_t time_us = 0;
};

struct RecordedTrace {
  std::vector<RecordedEvent> events;
  std::vector<std::string> remarks;  // lines that begin with #
  std::uint64_t bytes = 0;           // of the file
  std::uint64_t live = 0;            // blocks that are never freed
  std::string fault;                 // why it is no trace; empty: it is one

  std::uint64_t count(char kind) const;
  bool has_remark(const std::string& part) const;
  /// The events in short, with the stream: a512/1 f512/1.
  std::string text() const;
};

RecordedTrace read_recorded_trace(const std::string& path);

/// A path that no other test has; what is there is removed at the end.
class ScratchFile {
 public:
  ScratchFile();
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_SUPPORT_RECORDED_TRACE_H_
