#include "tools/serve/recording.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "exporter/metrics/history.h"
#include "tools/replay/session.h"

namespace gpupool::tools {
namespace {

/// Notes at which operation of a session something failed or fell back.
class MarkTaker final : public SlowPathObserver {
 public:
  MarkTaker(Marks& failures, Marks& fallbacks) : failures_(failures), fallbacks_(fallbacks) {}

  void follow(Session& session) { session_ = &session; }

  void on_event(const SlowPathEvent& event) noexcept override {
    // What the pool does while it opens belongs to no operation.
    if (session_ == nullptr) return;
    if (event.kind == SlowPathEventKind::failure) add(failures_, event);
    if (event.kind == SlowPathEventKind::fallback) add(fallbacks_, event);
  }

 private:
  void add(Marks& marks, const SlowPathEvent& event) noexcept {
    ++marks.count;
    // Reserved beforehand: no memory is asked for here.
    if (marks.first.size() == marks.first.capacity()) return;
    marks.first.push_back({session_->operation(), event.time_ns, event.bytes});
  }

  Marks& failures_;
  Marks& fallbacks_;
  const Session* session_ = nullptr;
};

std::uint64_t since_start(const StatsV1& stats) { return stats.time_ns - stats.start_time_ns; }

/// The first pass.
Result<void, Status> take_samples(const Trace& trace, const std::vector<Step>& steps,
                                  ReplayOptions options, Recording& recording,
                                  std::vector<double>& peaks) {
  MarkTaker marks(recording.failures, recording.fallbacks);
  for (Marks* each : {&recording.failures, &recording.fallbacks}) each->first.reserve(kMaxMarks);
  options.observer = &marks;
  auto opened = Session::open(trace, steps, options);
  if (!opened.ok()) return opened.error();
  Session& session = *opened.value();
  marks.follow(session);
  recording.device = session.pool().device();
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t place = 0;; place = std::min(place + recording.stride, recording.operations)) {
    session.advance_to(place);
    const StatsV1 stats = session.pool().stats();
    Sample sample{.operation = place, .time_ns = since_start(stats), .columns = {}};
    std::ranges::transform(internal::history_columns(), std::back_inserter(sample.columns),
                           [&](const internal::HistoryColumn& each) { return each.read(stats); });
    recording.samples.push_back(std::move(sample));
    recording.limit_bytes = stats.limit_bytes;
    peaks.push_back(static_cast<double>(stats.peak_held_bytes));
    if (place == recording.operations) break;
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  recording.replay_seconds = taken.count();
  recording.peak_held.value = peaks.back();
  const std::uint64_t start_time_ns = session.pool().stats().start_time_ns;
  for (Marks* each : {&recording.failures, &recording.fallbacks}) {
    for (Mark& mark : each->first) mark.time_ns -= start_time_ns;
  }
  recording.duration_ns = recording.samples.back().time_ns;
  const std::string fault = session.find_fault();
  if (!fault.empty()) return Status{Error::backend_failure, trace.path + ": " + fault};
  return {};
}

std::size_t column_index(std::string_view name) {
  const auto columns = internal::history_columns();
  return static_cast<std::size_t>(std::ranges::find(columns, name, &internal::HistoryColumn::name) -
                                  columns.begin());
}

std::vector<double> column(const Recording& recording, std::string_view name) {
  const std::size_t index = column_index(name);
  std::vector<double> values;
  for (const Sample& sample : recording.samples) values.push_back(sample.columns[index]);
  return values;
}

/// At each sample.
std::vector<double> measured(const Recording& recording) {
  if (recording.measure == FragmentationMeasure::ratio) {
    return column(recording, "fragmentation_ratio");
  }
  std::vector<double> split = column(recording, "free_bytes");
  const std::vector<double> largest = column(recording, "largest_free_block_bytes");
  for (std::size_t i = 0; i < split.size(); ++i) split[i] -= std::min(split[i], largest[i]);
  return split;
}

/// The second pass: looks at each operation between some neighbouring samples.
class CloserLook {
 public:
  CloserLook(Recording& recording, const std::vector<double>& peaks) : recording_(recording) {
    const std::vector<double> values = measured(recording);
    const auto peak = std::ranges::find(peaks, peaks.back()) - peaks.begin();
    add_around(static_cast<std::size_t>(peak));
    add_around(static_cast<std::size_t>(std::ranges::max_element(values) - values.begin()));
  }

  void play(Session& session) {
    look(session.pool().stats(), 0);
    for (const std::size_t sample : samples_) {
      const std::uint64_t first = recording_.samples[sample - 1].operation;
      session.advance_to(first);
      for (std::uint64_t place = first + 1; place <= recording_.samples[sample].operation;
           ++place) {
        session.advance_to(place);
        look(session.pool().stats(), place);
      }
    }
  }

 private:
  /// What comes before a sample, and what comes after it.
  void add_around(std::size_t sample) {
    if (sample > 0) samples_.insert(sample);
    if (sample + 1 < recording_.samples.size()) samples_.insert(sample + 1);
  }

  void look(const StatsV1& stats, std::uint64_t place) {
    const double value = measure_of(recording_.measure, stats);
    if (value > (recording_.worst ? recording_.worst->value : 0)) {
      recording_.worst = Moment{place, since_start(stats), value};
    }
    if (has_peak_ || static_cast<double>(stats.peak_held_bytes) < recording_.peak_held.value)
      return;
    recording_.peak_held.operation = place;
    recording_.peak_held.time_ns = since_start(stats);
    has_peak_ = true;
  }

  Recording& recording_;
  std::set<std::size_t> samples_;  // each stands for what lies between it and the one before
  bool has_peak_ = false;
};

/// On the climb to the worst, of the rises within kBirthShare of the job the largest, and of equal
/// ones the shortest.
std::optional<Birth> find_birth(const Recording& recording) {
  const std::vector<double> values = measured(recording);
  const auto worst = static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
  std::size_t start = worst;
  while (start > 0 && values[start] > kLowShare * values[worst]) --start;
  const std::size_t most = std::max<std::size_t>(1, values.size() / kBirthShare);
  std::optional<Birth> best;
  double rise = 0;
  for (std::size_t length = 1; length <= most; ++length) {
    for (std::size_t end = start + length; end <= worst; ++end) {
      const double from = values[end - length];
      if (values[end] - from <= rise) continue;
      rise = values[end] - from;
      const Sample& sample = recording.samples[end];
      best = Birth{{sample.operation, sample.time_ns, values[end]},
                   recording.samples[end - length].operation,
                   from};
    }
  }
  return best;
}

std::uint64_t count_operations(const std::vector<Step>& steps) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      steps, [](const Step& step) { return step.kind != StepKind::maintain; }));
}

}  // namespace

const char* to_string(FragmentationMeasure measure) noexcept {
  return measure == FragmentationMeasure::ratio ? "fragmentation_ratio" : "split_free_bytes";
}

double measure_of(FragmentationMeasure measure, const StatsV1& stats) {
  if (measure == FragmentationMeasure::ratio) return stats.fragmentation_ratio;
  return static_cast<double>(stats.free_bytes -
                             std::min(stats.free_bytes, stats.largest_free_block_bytes));
}

Result<Recording, Status> make_recording(const Trace& trace, const std::vector<Step>& steps,
                                         const ReplayOptions& options) {
  Recording recording;
  recording.name = trace.name;
  recording.has_time = trace.seconds.has_value();
  recording.operations = count_operations(steps);
  recording.stride =
      std::max<std::uint64_t>(1, (recording.operations + kMaxSamples - 1) / kMaxSamples);
  ReplayOptions unseen = options;
  unseen.observer = nullptr;
  std::vector<double> peaks;
  if (const auto taken = take_samples(trace, steps, unseen, recording, peaks); !taken.ok()) {
    return taken.error();
  }
  if (std::ranges::max(measured(recording)) < kLeastRatio) {
    recording.measure = FragmentationMeasure::split_free_bytes;
  }
  auto again = Session::open(trace, steps, unseen);
  if (!again.ok()) return again.error();
  recording.birth = find_birth(recording);
  CloserLook(recording, peaks).play(*again.value());
  return recording;
}

}  // namespace gpupool::tools
