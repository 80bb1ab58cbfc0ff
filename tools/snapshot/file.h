// A saved snapshot, read and checked: /api/v1/snapshot as it was answered (schema gpupool.snapshot,
// version 1), or what the page's "Save all numbers and the map" saves (gpupool.page, version 1).
// Plain or gzip'd.
//
// A file that is taken has every field that is shown, of the right kind; columns are of equal
// length, and their indexes are of something that is there. Thread safety: plain functions and
// values. Cost: the file's text and its JSON in memory.
#ifndef GPUPOOL_TOOLS_SNAPSHOT_FILE_H_
#define GPUPOOL_TOOLS_SNAPSHOT_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpupool/status.h"

namespace gpupool::tools {

struct SnapshotState {
  std::string name;
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
};

struct SnapshotTag {
  std::string name;
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;  // as they were asked for
};

struct SnapshotFile {
  std::string path;
  std::string name;  // without folders
  std::string pool;
  int device = 0;
  std::uint64_t time_ms = 0;
  std::uint64_t held_bytes = 0;
  std::uint64_t limit_in_force_bytes = 0;
  std::uint64_t largest_free_block_bytes = 0;
  /// Only a page's file has the process's numbers, and a map without them does not know these.
  std::uint64_t largest_satisfiable_bytes = 0;
  double fragmentation_ratio = 0;
  std::vector<SnapshotState> states;
  std::vector<SnapshotTag> tags;
  std::uint64_t fallback_blocks = 0;
  bool has_counters = false;

  /// Of the blocks in this state; 0 of one that there is not.
  std::uint64_t bytes_in(std::string_view state) const;

  // As the API answers; empty where the file has nothing of the kind.
  std::string stats_json;
  std::string snapshot_json;
  std::string events_json;
  std::string last_failure_json;
};

/// The message is one line for a person: "FILE: reason".
Result<SnapshotFile, Status> load_snapshot(const std::string& path);

/// The same for text that is already in memory; `path` is only named in errors.
Result<SnapshotFile, Status> parse_snapshot(const std::string& path, const std::string& text);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SNAPSHOT_FILE_H_
