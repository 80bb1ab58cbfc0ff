// What a run has found: a row for each step that ran, what was left out and why, what was wrong,
// and the times of collectives.
//
// Thread safety: fault(), fault_count() and progress are for any thread, the rest for one.
#ifndef GPUPOOL_TESTS_GPU_PEERS_REPORT_H_
#define GPUPOOL_TESTS_GPU_PEERS_REPORT_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gpupool::gpu_tests {

/// One step in one mode.
struct Row {
  std::string step;
  std::string mode;
  std::uint64_t rounds = 0;
  std::uint64_t wanted_rounds = 0;
  std::uint64_t calls = 0;                 // of pools, each with a look at what is current
  std::uint64_t others = 0;                // allocations of other threads meanwhile
  std::vector<std::uint64_t> pages_moved;  // for each device; of segments: given back
  double seconds = 0;
  std::uint64_t faults = 0;
};

/// A collective on blocks of the pool beside the same on memory of cudaMalloc: medians of runs.
struct Timing {
  std::string mode;
  std::string operation;
  bool is_registered = false;
  std::uint64_t bytes = 0;
  double pool_us = 0;
  double plain_us = 0;
  double plain_spread = 0;  // slowest less fastest run, of the median
  double ratio() const { return pool_us / plain_us; }
};

class Report {
 public:
  void fault(const std::string& what, const std::string& why);
  std::uint64_t fault_count() const { return fault_count_.load(); }
  void leave_out(const std::string& what, const std::string& why);
  void add(Row row) { rows_.push_back(std::move(row)); }
  void add(Timing timing) { timings_.push_back(std::move(timing)); }
  /// What the machine is, line by line.
  void describe(const std::string& key, const std::string& value);

  /// False where the file could not be written; an empty path is none.
  bool save(const std::string& path);
  void print();

  /// Rounds of the step that runs, for whoever watches that it goes on.
  std::atomic<std::uint64_t> progress{0};

 private:
  using Line = std::pair<std::string, std::string>;

  std::vector<Line> machine_;
  std::vector<Row> rows_;
  std::vector<Timing> timings_;
  std::vector<Line> left_out_;
  mutable std::mutex mutex_;
  std::vector<Line> faults_;  // under mutex_; the first kMostFaults
  std::atomic<std::uint64_t> fault_count_{0};
};

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_PEERS_REPORT_H_
