// One run of a scenario: virtual time, processes with a card and a pool each, and what a Prometheus
// that scrapes them every 15 seconds would keep.
//
//   Run run({"slow_leak", 1}, families);
//   Process& process = run.start({});
//   void* block = process.take(gib(2));      // throws RequestFailed where the pool has none
//   run.pass(1.5);                           // time goes by: scrapes, upkeep, work of the device
//   process.give(block);
//
// A request that fails ends the run: it is what the alerts are to be ahead of.
// Thread safety: none. Cost: of a scrape about 0.1 ms, of an hour without requests 30 ms.
#ifndef GPUPOOL_TESTS_SCENARIOS_RUN_H_
#define GPUPOOL_TESTS_SCENARIOS_RUN_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpupool/exporter/collector.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/scenarios/recorder.h"
#include "tests/support/random.h"

namespace gpupool::test {

inline constexpr double kScrapeSeconds = 15;

constexpr std::uint64_t mib(double count) {
  return static_cast<std::uint64_t>(count * static_cast<double>(std::uint64_t{1} << 20));
}
constexpr std::uint64_t gib(double count) { return mib(1024 * count); }
constexpr double minutes(double count) { return 60 * count; }
constexpr double hours(double count) { return 3600 * count; }
/// A scenario that is to fail and has not by then is reported.
inline constexpr double kForever = hours(12);

struct RequestFailed {};

struct ProcessOptions {
  std::string kind = "train";
  /// Put behind the scenario's job id, for several jobs in one run.
  std::string job;
  int rank = 0;
  int world_size = 1;
  std::uint64_t card_bytes = gib(80);
  PoolOptions pool;
};

/// A process of a job: one card of its own, one pool, one compute stream and one beside it.
class Process {
 public:
  Process(const ProcessOptions& options, double now);
  ~Process();

  void* take(std::uint64_t bytes, const char* tag = nullptr) {
    return take_on(compute_, bytes, tag);
  }
  void* take_beside(std::uint64_t bytes, const char* tag = nullptr) {
    return take_on(beside_, bytes, tag);
  }
  void give(void* block) { give_on(compute_, block); }
  void give_beside(void* block) { give_on(beside_, block); }
  /// Work of this length, on the compute stream or beside it.
  void compute(double seconds) { launch(compute_raw_, seconds); }
  void compute_beside(double seconds) { launch(beside_raw_, seconds); }

  /// What is taken on the compute stream in between is for the graph.
  void begin_capture(CapturePoolId id);
  void end_capture(CapturePoolId id);
  /// Nothing that is given to the stream beside from now on completes.
  void hang_beside();
  /// Others on the card hold so much from now on, but leave `left` free.
  void others_take(std::uint64_t bytes, std::uint64_t left = 0);
  void set_capacity(std::uint64_t bytes);

  Pool& pool() { return *pool_; }
  StreamRef beside_stream() const { return beside_; }
  double start_seconds() const { return start_seconds_; }
  double now() const;
  void advance_to(double seconds);
  std::vector<prometheus::MetricFamily> scrape() const { return collector_.Collect(); }

 private:
  void* take_on(StreamRef stream, std::uint64_t bytes, const char* tag);
  void give_on(StreamRef stream, void* block);
  void launch(RawStream stream, double seconds);

  double start_seconds_;
  SimulatedBackend card_;
  RawStream compute_raw_, beside_raw_;
  std::unique_ptr<Pool> pool_;
  PoolCollector collector_;
  StreamRef compute_, beside_;
  std::uint64_t others_ = 0;
};

class Run {
 public:
  Run(std::string name, std::uint64_t seed, std::set<std::string> families);

  /// A process of its own target; where one of that rank was killed, on the same target again.
  Process& start(const ProcessOptions& options);
  /// It dies: its target stays, and does not answer.
  void kill(Process& process);
  /// It ends in good order: discovery drops its target.
  void end(Process& process);
  void pass(double seconds);
  /// Every `count`-th scrape of every target is lost from now on; 0: none.
  void lose_every(std::size_t count) { lose_every_ = count; }

  /// What makes a later request fail has happened now, all at once.
  void note_cause() { cause_ = now_; }
  /// A request of one of the processes has failed.
  void note_failure();
  double now() const { return now_; }
  std::optional<double> cause() const { return cause_; }
  std::optional<double> failure() const { return failure_; }
  /// What the pool said of the request that failed.
  const std::string& failure_text() const { return failure_text_; }
  const Recorder& recorder() const { return recorder_; }
  std::string job_id() const;

  // The seed's choices.
  double between(double low, double high);
  std::uint64_t bytes_between(double low_gib, double high_gib) {
    return gib(between(low_gib, high_gib));
  }
  bool one_in(std::uint64_t n) { return chance_.one_in(n); }

 private:
  struct Target {
    LabelText labels;
    int rank = 0;
    std::string job;
    std::unique_ptr<Process> process;  // none: it does not answer
  };

  void scrape();
  LabelText labels_of(const ProcessOptions& options) const;

  std::string name_;
  std::uint64_t seed_;
  Random chance_;
  Recorder recorder_;
  std::list<Target> targets_;
  double now_ = 0;
  double maintained_ = 0;
  std::size_t scrapes_ = 0;
  std::size_t lose_every_ = 0;
  std::optional<double> cause_, failure_;
  std::string failure_text_;
};

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SCENARIOS_RUN_H_
