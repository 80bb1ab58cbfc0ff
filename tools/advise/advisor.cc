#include "tools/advise/advisor.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <tuple>
#include <utility>

namespace gpupool::tools {
namespace {

/// More at once would need the host memory of as many replays.
constexpr std::size_t kMaxThreads = 8;

/// Calls `job` with each index below `count`, on several threads. What a job throws is thrown.
template <class Job>
void run_all(std::size_t count, const Job& job) {
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::atomic<std::size_t> next{0};
  std::vector<std::future<void>> threads;
  for (std::size_t i = 0; i < std::min({cores, kMaxThreads, count}); ++i) {
    threads.push_back(std::async(std::launch::async, [&] {
      for (std::size_t index = next++; index < count; index = next++) job(index);
    }));
  }
  for (std::future<void>& thread : threads) thread.get();
}

/// Between settings that cost the same: the defaults, or else the one that moves less, and is
/// nearer to them.
auto tameness(const Setting& setting) {
  const std::uint64_t usual = Setting().cache_large_bytes;
  const std::uint64_t cache = setting.cache_large_bytes;
  return std::make_tuple(!(setting == Setting()), setting.alias_reuse, setting.recycling,
                         -setting.slack_percent, cache > usual ? cache - usual : usual - cache,
                         cache);
}

auto failure_key(const Trial& trial) {
  return std::make_tuple(trial.failed() != 0, trial.failed_bytes(), trial.failed());
}

auto memory_key(const Trial& trial) {
  return std::make_tuple(trial.worst_ratio(), trial.mean_ratio());
}

auto waiting_key(const Trial& trial) {
  return std::make_tuple(trial.warm_wait_share(), trial.cold_wait_share(),
                         trial.warm().driver_seconds, trial.cold().driver_seconds,
                         -trial.cache_hit_share());
}

auto by_memory(const Trial& trial) {
  return std::tuple_cat(failure_key(trial), memory_key(trial), waiting_key(trial),
                        tameness(trial.setting));
}

auto by_waiting(const Trial& trial) {
  return std::tuple_cat(failure_key(trial), waiting_key(trial), memory_key(trial),
                        tameness(trial.setting));
}

class AdviceSearch {
 public:
  AdviceSearch(const std::vector<Trace>& traces, const AdviseOptions& options,
               SettingTester& tester)
      : traces_(traces), options_(options), tester_(tester) {}

  /// Tries those of `settings` that were not tried yet.
  Result<void, ReplayFailure> try_all(const std::vector<Setting>& settings);
  /// Where the search goes on from: the best, or what comes nearest to it.
  Setting basis() const;

  std::vector<Trial>& trials() { return trials_; }
  std::vector<std::string>& unavailable() { return unavailable_; }

 private:
  bool is_known(const Setting& setting) const {
    return std::find(known_.begin(), known_.end(), setting) != known_.end();
  }

  const std::vector<Trace>& traces_;
  const AdviseOptions& options_;
  SettingTester& tester_;
  std::vector<Trial> trials_;
  std::vector<Setting> known_;  // tried or refused
  std::vector<std::string> unavailable_;
};

Result<void, ReplayFailure> AdviceSearch::try_all(const std::vector<Setting>& settings) {
  const std::size_t first = trials_.size();
  for (const Setting& setting : settings) {
    if (is_known(setting)) continue;
    known_.push_back(setting);
    std::string refusal = tester_.find_refusal(setting);
    if (refusal.empty()) {
      trials_.push_back({setting, std::vector<TraceCost>(traces_.size())});
    } else if (std::find(unavailable_.begin(), unavailable_.end(), refusal) == unavailable_.end()) {
      unavailable_.push_back(std::move(refusal));
    }
  }
  const std::size_t count = (trials_.size() - first) * traces_.size();
  std::vector<std::optional<ReplayFailure>> failures(count);
  run_all(count, [&](std::size_t index) {
    Trial& trial = trials_[first + index / traces_.size()];
    const std::size_t trace = index % traces_.size();
    auto cost = tester_.measure(trial.setting, traces_[trace]);
    if (cost.ok()) {
      trial.traces[trace] = cost.value();
    } else {
      failures[index] = cost.error();
    }
  });
  for (const auto& failure : failures) {
    if (failure) return *failure;
  }
  return {};
}

Setting AdviceSearch::basis() const {
  if (const auto found = choose(trials_, options_)) return trials_[*found].setting;
  // Of failures by_memory takes the fewest bytes first; what may not be advised leads nowhere.
  const auto key = [&](const Trial& trial) {
    return std::make_tuple(!is_allowed(trial.setting, options_), by_memory(trial));
  };
  const auto least =
      std::min_element(trials_.begin(), trials_.end(),
                       [&](const Trial& a, const Trial& b) { return key(a) < key(b); });
  return least->setting;
}

Result<std::vector<Need>, ReplayFailure> find_needs(const std::vector<Trace>& traces,
                                                    SettingTester& tester) {
  std::vector<Need> needs;
  for (const Recycling recycling : {Recycling::off, Recycling::pressure, Setting().recycling}) {
    Setting setting;
    setting.recycling = recycling;
    if (tester.find_refusal(setting).empty()) needs.push_back({setting, std::uint64_t{0}});
  }
  const std::size_t count = needs.size() * traces.size();
  std::vector<std::optional<std::uint64_t>> found(count);
  std::vector<std::optional<ReplayFailure>> failures(count);
  run_all(count, [&](std::size_t index) {
    const auto need =
        tester.find_need(needs[index / traces.size()].setting, traces[index % traces.size()]);
    if (need.ok()) {
      found[index] = need.value();
    } else {
      failures[index] = need.error();
    }
  });
  for (std::size_t i = 0; i < count; ++i) {
    if (failures[i]) return *failures[i];
    std::optional<std::uint64_t>& most = needs[i / traces.size()].capacity_bytes;
    most = most && found[i] ? std::optional(std::max(*most, *found[i])) : std::nullopt;
  }
  return needs;
}

std::size_t index_of(const std::vector<Trial>& trials, const Setting& setting) {
  const auto found = std::find_if(trials.begin(), trials.end(),
                                  [&](const Trial& trial) { return trial.setting == setting; });
  return static_cast<std::size_t>(found - trials.begin());
}

/// As if there were no other trace.
Trial only(const Trial& trial, std::size_t trace) { return {trial.setting, {trial.traces[trace]}}; }

std::optional<std::size_t> find_bolder(const std::vector<Trial>& trials, std::size_t chosen,
                                       AdviseOptions options) {
  options.allows_same_stream = true;
  const auto bolder = choose(trials, options);
  const bool is_better =
      is_within_budget(trials[*bolder], options) != is_within_budget(trials[chosen], options) ||
      trials[*bolder].worst_ratio() < trials[chosen].worst_ratio();
  return is_better ? bolder : std::nullopt;
}

}  // namespace

std::optional<std::size_t> choose(const std::vector<Trial>& trials, const AdviseOptions& options,
                                  std::optional<std::size_t> trace) {
  std::optional<std::size_t> best;
  std::optional<Trial> best_trial;
  const auto is_better = [&](const Trial& a, const Trial& b) {
    const bool a_keeps = is_within_budget(a, options);
    const bool b_keeps = is_within_budget(b, options);
    if (a_keeps != b_keeps) return a_keeps;
    return a_keeps ? by_memory(a) < by_memory(b) : by_waiting(a) < by_waiting(b);
  };
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Trial trial = trace ? only(trials[i], *trace) : trials[i];
    if (trial.failed() != 0 || !is_allowed(trial.setting, options)) continue;
    if (best && !is_better(trial, *best_trial)) continue;
    best = i;
    best_trial = trial;
  }
  return best;
}

std::optional<Need> find_least(const std::vector<Need>& needs) {
  std::optional<Need> least;
  for (const Need& need : needs) {
    if (!need.capacity_bytes) continue;
    if (!least || *need.capacity_bytes <= *least->capacity_bytes) least = need;
  }
  return least;
}

bool is_within_budget(const Trial& trial, const AdviseOptions& options) {
  return trial.warm_wait_share() * 100 <= options.budget_percent;
}

bool is_allowed(const Setting& setting, const AdviseOptions& options) {
  return options.allows_same_stream || setting.alias_reuse != AliasReuse::same_stream;
}

Result<Advice, ReplayFailure> advise(const std::vector<Trace>& traces, const AdviseOptions& options,
                                     SettingTester& tester) {
  AdviceSearch search(traces, options, tester);
  Setting basis;
  for (int turn = 0; turn < kMaxTurns; ++turn) {
    const Setting before = basis;
    for (const auto& coordinate : {with_each_policy, with_each_cache}) {
      if (auto tried = search.try_all(coordinate(basis)); !tried.ok()) return tried.error();
      basis = search.basis();
    }
    if (basis == before) break;
  }

  std::vector<Trial>& trials = search.trials();
  std::sort(trials.begin(), trials.end(),
            [](const Trial& a, const Trial& b) { return by_memory(a) < by_memory(b); });
  Advice advice;
  advice.chosen = choose(trials, options);
  advice.defaults = index_of(trials, Setting());
  if (advice.chosen) {
    advice.with_same_stream = find_bolder(trials, *advice.chosen, options);
  } else {
    auto needs = find_needs(traces, tester);
    if (!needs.ok()) return needs.error();
    advice.needs = std::move(needs).value();
  }
  advice.trials = std::move(trials);
  advice.unavailable = std::move(search.unavailable());
  return advice;
}

}  // namespace gpupool::tools
