// The measurements that every system takes, as templates over it (system.h). Each opens the system
// anew, so that none finds what another left.
//
// Thread safety: one thread, which starts those that are measured. Cost: about five seconds a
// system with the default plan, and the passes over the traces.
#ifndef GPUPOOL_BENCH_PEERS_MEASURE_H_
#define GPUPOOL_BENCH_PEERS_MEASURE_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/peers/result.h"
#include "bench/peers/system.h"
#include "bench/peers/timing.h"
#include "bench/peers/trace_plan.h"

namespace gpupool::bench {

/// What is measured, and for how long.
struct Plan {
  tools::DeviceChoice device = tools::DeviceChoice::automatic;
  std::vector<std::uint64_t> pair_bytes;  // none: no pairs
  std::uint64_t pair_rounds = 11;
  std::chrono::nanoseconds pair_round_time = std::chrono::milliseconds(5);
  std::vector<std::uint64_t> thread_counts;  // none: no threads
  std::uint64_t thread_bytes = std::uint64_t{1} << 20;
  std::uint64_t thread_rounds = 3;
  std::chrono::nanoseconds thread_time = std::chrono::milliseconds(150);
  std::vector<TracePlan> traces;
  std::uint64_t trace_warm_up_passes = 2;
  std::uint64_t trace_passes = 9;
  std::chrono::nanoseconds trace_time = std::chrono::seconds(4);  // then no further pass begins
  std::uint64_t burst_blocks = 0;                                 // 0: no burst
  std::uint64_t burst_bytes = std::uint64_t{1} << 20;
  std::uint64_t burst_warm_rounds = 5;
  std::chrono::nanoseconds burst_time = std::chrono::seconds(2);
};

/// Not inlined: it is the whole of what is timed, the same for every system.
template <System S>
[[gnu::noinline]] std::uint64_t run_pairs(S& system, typename S::Stream stream, std::uint64_t bytes,
                                          std::uint64_t pairs) {
  std::uint64_t failed = 0;
  for (std::uint64_t i = 0; i < pairs; ++i) {
    void* const block = system.allocate(bytes, stream);
    if (block == nullptr) ++failed;
    if (!system.deallocate(block, bytes, stream)) ++failed;
  }
  return failed;
}

template <System S>
PairResult measure_pairs(S& system, std::uint64_t bytes, const Plan& plan) {
  const typename S::Stream stream = system.streams().front();
  const auto round_ns = static_cast<double>(plan.pair_round_time.count());
  PairResult result;
  result.bytes = bytes;
  // As many pairs as fill a round; warms the system up on the way.
  std::uint64_t pairs = 1;
  constexpr std::uint64_t kMostPairs = std::uint64_t{1} << 26;
  for (; pairs < kMostPairs; pairs *= 2) {
    const Time start = now();
    result.failed += run_pairs(system, stream, bytes, pairs);
    if (ns_since(start) >= round_ns) break;
  }
  std::vector<double> rounds;
  for (std::uint64_t round = 0; round < plan.pair_rounds; ++round) {
    const Time start = now();
    result.failed += run_pairs(system, stream, bytes, pairs);
    rounds.push_back(ns_since(start) / static_cast<double>(pairs));
  }
  result.ns_median = median(rounds);
  result.ns_least = least(rounds);
  return result;
}

/// Million pairs a second of all threads together.
template <System S>
double run_threads(S& system, std::uint64_t thread_count, const Plan& plan,
                   std::atomic<std::uint64_t>& failed) {
  // On lines of their own, since each thread writes one and polls another.
  struct alignas(128) Lane {
    std::uint64_t pairs = 0;
    Time start;
    Time end;
  };
  std::vector<Lane> lanes(thread_count);
  alignas(128) std::atomic<bool> is_over{false};
  alignas(128) std::atomic<std::uint64_t> ready{0};
  constexpr std::uint64_t kBatch = 8;
  const auto work = [&](Lane& lane, typename S::Stream stream) {
    std::uint64_t failures = run_pairs(system, stream, plan.thread_bytes, kBatch);
    ready.fetch_add(1);
    while (ready.load() < thread_count) std::this_thread::yield();
    lane.start = now();
    std::uint64_t pairs = 0;
    while (!is_over.load(std::memory_order_relaxed)) {
      failures += run_pairs(system, stream, plan.thread_bytes, kBatch);
      pairs += kBatch;
    }
    lane.end = now();
    lane.pairs = pairs;
    failed += failures;
  };
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < thread_count; ++i) {
    threads.emplace_back(work, std::ref(lanes[i]), system.streams()[i]);
  }
  while (ready.load() < thread_count) std::this_thread::yield();
  std::this_thread::sleep_for(plan.thread_time);
  is_over = true;
  for (std::thread& thread : threads) thread.join();

  constexpr double kThousand = 1e3;  // pairs a nanosecond, in millions a second
  double rate = 0;
  for (const Lane& lane : lanes) {
    rate += static_cast<double>(lane.pairs) / ns_between(lane.start, lane.end) * kThousand;
  }
  return rate;
}

template <System S>
ThreadsResult measure_threads(S& system, std::uint64_t thread_count, const Plan& plan) {
  std::atomic<std::uint64_t> failed{0};
  std::vector<double> rates;
  for (std::uint64_t round = 0; round < plan.thread_rounds; ++round) {
    rates.push_back(run_threads(system, thread_count, plan, failed));
  }
  return {thread_count, median(rates), failed};
}

/// One burst; the times are of calls, `failed` rises.
template <System S>
BurstRound run_burst(S& system, const Plan& plan, std::vector<void*>& blocks,
                     std::uint64_t& failed) {
  const typename S::Stream stream = system.streams().front();
  const Time start = now();
  for (void*& block : blocks) {
    block = system.allocate(plan.burst_bytes, stream);
    if (block == nullptr) ++failed;
  }
  const Time middle = now();
  for (void* block : blocks) {
    if (!system.deallocate(block, plan.burst_bytes, stream)) ++failed;
  }
  const Time end = now();
  constexpr double kNsPerUs = 1e3;
  constexpr double kNsPerMs = 1e6;
  const auto count = static_cast<double>(blocks.size());
  return {ns_between(start, middle) / count / kNsPerUs, ns_between(middle, end) / count / kNsPerUs,
          ns_between(start, end) / kNsPerMs};
}

template <System S>
BurstResult measure_burst(S& system, const Plan& plan) {
  BurstResult result;
  result.blocks = plan.burst_blocks;
  result.bytes = plan.burst_bytes;
  std::vector<void*> blocks(plan.burst_blocks, nullptr);
  system.empty();
  result.cold = run_burst(system, plan, blocks, result.failed);
  std::vector<double> allocate;
  std::vector<double> deallocate;
  std::vector<double> total;
  const Time start = now();
  do {
    const BurstRound round = run_burst(system, plan, blocks, result.failed);
    allocate.push_back(round.allocate_us);
    deallocate.push_back(round.free_us);
    total.push_back(round.total_ms);
  } while (total.size() < plan.burst_warm_rounds &&
           ns_since(start) < static_cast<double>(plan.burst_time.count()));
  result.warm = {median(allocate), median(deallocate), median(total)};
  result.warm_rounds = total.size();
  return result;
}

/// Plays a trace through a system: the loop, and what has to be done between two of its passes.
template <System S>
class TracePlayer {
 public:
  TracePlayer(S& system, const TracePlan& trace)
      : system_(system),
        steps_(trace.steps_of(S::kIsMaintained)),
        step_count_(std::min<std::uint64_t>(steps_.size(), S::kMaxTraceSteps)),
        pointers_(trace.slot_count, nullptr),
        owners_(trace.slot_count, 0) {
    for (std::uint64_t i = 0; i < step_count_; ++i) {
      if (steps_[i].kind == tools::StepKind::allocate) {
        owners_[steps_[i].slot] = static_cast<std::uint32_t>(i);
      }
    }
  }

  std::uint64_t step_count() const { return step_count_; }
  std::uint64_t failed() const { return failed_; }
  std::uint64_t operations() const { return count_operations(steps_, step_count_); }
  std::uint64_t peak_requested() const { return peak_requested_bytes(steps_, step_count_); }

  /// One pass; nanoseconds an operation.
  [[gnu::noinline]] double play() {
    S& system = system_;
    void** const pointers = pointers_.data();
    const typename S::Stream* const streams = system.streams().data();
    std::uint64_t failed = 0;
    const tools::Step* const end = steps_.data() + step_count_;
    const Time start = now();
    for (const tools::Step* step = steps_.data(); step != end; ++step) {
      switch (step->kind) {
        case tools::StepKind::allocate:
          pointers[step->slot] = system.allocate(step->amount, streams[step->stream]);
          if (pointers[step->slot] == nullptr) ++failed;
          break;
        case tools::StepKind::free:
          if (!system.deallocate(pointers[step->slot], step->amount, streams[step->stream])) {
            ++failed;
          }
          pointers[step->slot] = nullptr;
          break;
        case tools::StepKind::maintain: system.advance(step->amount); break;
      }
    }
    const double ns = ns_since(start);
    failed_ += failed;
    return ns / static_cast<double>(operations());
  }

  /// The most that the system said it held, asked whenever the bytes requested reach a new high by
  /// more than a hundredth: for systems that keep no peak of their own. Not timed.
  std::optional<std::uint64_t> play_and_ask() {
    std::optional<std::uint64_t> peak;
    std::uint64_t live = 0;
    std::uint64_t asked_at = 0;
    for (std::uint64_t i = 0; i < step_count_; ++i) {
      const tools::Step& step = steps_[i];
      void*& block = pointers_[step.slot];
      if (step.kind == tools::StepKind::allocate) {
        block = system_.allocate(step.amount, system_.streams()[step.stream]);
        live += step.amount;
        if (live <= asked_at + asked_at / 100) continue;
        asked_at = live;
        const std::optional<std::uint64_t> held = system_.usage().held_bytes;
        if (held) peak = std::max(peak.value_or(0), *held);
      } else if (step.kind == tools::StepKind::free) {
        if (!system_.deallocate(block, step.amount, system_.streams()[step.stream])) ++failed_;
        block = nullptr;
        live -= step.amount;
      }
    }
    return peak;
  }

  /// Frees what a pass left.
  void end_pass() {
    for (std::size_t slot = 0; slot < pointers_.size(); ++slot) {
      if (pointers_[slot] == nullptr) continue;
      const tools::Step& step = steps_[owners_[slot]];
      if (!system_.deallocate(pointers_[slot], step.amount, system_.streams()[step.stream])) {
        ++failed_;
      }
      pointers_[slot] = nullptr;
    }
    system_.end_pass();
  }

 private:
  S& system_;
  const std::vector<tools::Step>& steps_;
  std::uint64_t step_count_;
  std::vector<void*> pointers_;        // by slot; nullptr where nothing is live
  std::vector<std::uint32_t> owners_;  // by slot: the last step that allocates it
  std::uint64_t failed_ = 0;
};

inline std::optional<std::uint64_t> difference(const std::optional<std::uint64_t>& before,
                                               const std::optional<std::uint64_t>& after) {
  if (!before || !after) return std::nullopt;
  return *after - *before;
}

inline void raise(std::optional<std::uint64_t>& value, const std::optional<std::uint64_t>& other) {
  if (other) value = std::max(value.value_or(0), *other);
}

template <System S>
TraceResult measure_trace(S& system, const TracePlan& trace, const Plan& plan) {
  TracePlayer<S> player(system, trace);
  TraceResult result;
  result.trace = trace.name;
  result.operations = player.operations();
  result.trace_operations = trace.steps.size();
  result.peak_requested_bytes = player.peak_requested();
  std::vector<double> warm;
  const Time start = now();
  for (std::uint64_t pass = 0; pass < plan.trace_warm_up_passes + plan.trace_passes; ++pass) {
    const bool is_late = ns_since(start) > static_cast<double>(plan.trace_time.count());
    if (is_late && !warm.empty()) break;
    system.reset_peak();
    const Usage before = system.usage();
    const double ns_per_op = player.play();
    const Usage after = system.usage();
    player.end_pass();
    raise(result.peak_held_bytes, after.peak_held_bytes);
    const auto allocations = difference(before.driver_allocations, after.driver_allocations);
    const auto calls = difference(before.driver_calls, after.driver_calls);
    if (pass == 0) {
      result.driver_allocations_cold = allocations;
      result.driver_calls_cold = calls;
    }
    // A pass that takes long takes longer than what a warm-up changes: it counts from the second.
    if (pass < plan.trace_warm_up_passes && !(pass > 0 && is_late)) continue;
    warm.push_back(ns_per_op);
    raise(result.driver_allocations_warm, allocations);
    raise(result.driver_calls_warm, calls);
  }
  if (!result.peak_held_bytes) {
    result.peak_held_bytes = player.play_and_ask();
    player.end_pass();
  }
  result.passes = warm.size();
  result.ns_per_op_median = median(warm);
  result.ns_per_op_least = least(warm);
  result.failed = player.failed();
  return result;
}

/// What is measured on streams of our own, in real time.
template <System S>
Result<void, Status> measure_hot_path(const Plan& plan, SystemResult& result) {
  SystemSetting setting;
  setting.device = plan.device;
  std::uint64_t stream_count = 1;
  for (const std::uint64_t count : plan.thread_counts) stream_count = std::max(stream_count, count);
  for (std::uint64_t i = 1; i <= stream_count; ++i) setting.streams.push_back(i);
  auto opened = S::open(setting);
  if (!opened.ok()) return opened.error();
  S& system = *opened.value();
  const SleepingThread second;
  for (const std::uint64_t bytes : plan.pair_bytes) {
    result.pairs.push_back(measure_pairs(system, bytes, plan));
  }
  result.threads_bytes = plan.thread_bytes;
  for (const std::uint64_t count : plan.thread_counts) {
    result.threads.push_back(measure_threads(system, count, plan));
  }
  if (plan.burst_blocks != 0) result.burst = measure_burst(system, plan);
  return {};
}

template <System S>
Result<void, Status> measure_traces(const Plan& plan, SystemResult& result) {
  const SleepingThread second;
  for (const TracePlan& trace : plan.traces) {
    auto opened = S::open({plan.device, trace.streams, true});
    if (!opened.ok()) return opened.error();
    result.traces.push_back(measure_trace(*opened.value(), trace, plan));
    opened.value()->empty();
  }
  return {};
}

/// All of `plan`; what stops it half-way is in the result's error.
template <System S>
SystemResult measure_system(const std::string& name, const Plan& plan) {
  SystemResult result;
  result.system = name;
  try {
    if (const auto done = measure_hot_path<S>(plan, result); !done.ok()) {
      result.error = done.error().message;
    } else if (const auto played = measure_traces<S>(plan, result); !played.ok()) {
      result.error = played.error().message;
    }
  } catch (const std::exception& thrown) {  // peers throw; what was measured before stays
    result.error = thrown.what();
  }
  return result;
}

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_MEASURE_H_
