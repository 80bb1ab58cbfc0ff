#include "tests/gpu/replay/trace_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tools/device/misuse_log.h"

namespace gpupool::gpu_tests {

using tools::Step;
using tools::StepKind;

namespace {

constexpr std::uint64_t kMaintainNs = 1'000'000;
/// A stall of that length each so many operations: longer than the host takes for them.
constexpr std::uint64_t kStallNs = 1'500'000;
constexpr std::uint64_t kStallOperations = 256;
constexpr std::uint64_t kRealMemoryBytes = std::uint64_t{16} << 30;

PassFigures difference(const StatsV1& after, const StatsV1& before) {
  PassFigures figures;
  figures.peak_requested_bytes = after.peak_requested_bytes;
  figures.peak_held_bytes = after.peak_held_bytes;
  figures.pages_recycled = after.pages_recycled - before.pages_recycled;
  figures.driver_wait_ns = after.driver_wait_ns - before.driver_wait_ns;
  for (std::size_t i = 0; i < kDriverOperationCount; ++i) {
    figures.driver[i] = {after.driver_calls_by_operation[i] - before.driver_calls_by_operation[i],
                         after.driver_duration[i].sum_ns - before.driver_duration[i].sum_ns};
  }
  return figures;
}

}  // namespace

const char* to_string(Mode mode) {
  switch (mode) {
    case Mode::modelled: return "modelled";
    case Mode::idle: return "idle";
    case Mode::busy: return "busy";
  }
  return "?";
}

std::uint64_t peak_requested_bytes(const std::vector<Step>& steps) {
  std::vector<std::uint64_t> bytes;
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  for (const Step& step : steps) {
    if (step.kind == StepKind::maintain) continue;
    if (bytes.size() <= step.slot) bytes.resize(step.slot + std::size_t{1});
    if (step.kind == StepKind::allocate) {
      bytes[step.slot] = step.amount;
      live += step.amount;
      peak = std::max(peak, live);
    } else {
      live -= bytes[step.slot];
    }
  }
  return peak;
}

Result<std::unique_ptr<TraceRun>, Status> TraceRun::open(const tools::Trace& trace,
                                                         const Setting& setting, Mode mode,
                                                         const Place& place) {
  std::unique_ptr<TraceRun> run(new TraceRun(setting, mode));
  auto plan = tools::make_plan(trace, {setting.honours_completions, 1});
  if (!plan.ok()) return plan.error();
  run->steps_ = std::move(plan).value();
  run->slots_.resize(trace.slot_count);
  if (setting.is_tight) run->capacity_bytes_ = tight_capacity(peak_requested_bytes(run->steps_));
  auto done = run->open_device(place);
  if (!done.ok()) return done.error();
  auto raw_streams = tools::DeviceStreams::create(run->device_, trace.streams);
  if (!raw_streams.ok()) return raw_streams.error();
  run->raw_streams_ = std::move(raw_streams).value();
  if (done = run->open_pool(); !done.ok()) return done.error();
  if (mode != Mode::busy) return run;
  if (done = run->open_work(place); !done.ok()) return done.error();
  if (!setting.maintains_inline) {
    run->maintainer_ = std::thread([run = run.get()] {
      while (!run->is_ending_.load()) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(kMaintainNs));
        run->pool_->maintain();
      }
    });
  }
  return run;
}

TraceRun::~TraceRun() {
  is_ending_ = true;
  if (maintainer_.joinable()) maintainer_.join();
  // After an error the streams may still be at it; an error here would be that one again.
  if (work_ != nullptr) static_cast<void>(work_->wait_for_all());
  for (const StreamRef stream : streams_) pool_->release_stream(stream);
}

Result<void, Status> TraceRun::open_device(const Place& place) {
  if (mode_ != Mode::modelled && place.device != tools::DeviceChoice::simulated) {
    auto device = tools::open_device(place.device, SimulatedTime::virtual_time);
    if (!device.ok()) return device.error();
    device_ = std::move(device).value();
    return {};
  }
  SimulatedDeviceOptions options;
  if (mode_ == Mode::busy && place.memory == SimulatedMemory::real) {
    options.memory = SimulatedMemory::real;
    options.capacity_bytes = kRealMemoryBytes;
  }
  device_ = tools::make_simulated_device(std::move(options));
  return {};
}

Result<void, Status> TraceRun::open_pool() {
  PoolOptions options;
  if (capacity_bytes_) options.capacity = *capacity_bytes_;
  options.runtime = setting_.runtime;
  options.misuse_handler = tools::log_misuse;
  if (mode_ == Mode::idle && device_.simulated == nullptr) options.clock = &clock_;
  auto pool = Pool::create(*device_.backend, std::move(options));
  if (!pool.ok()) return pool.error();
  pool_ = std::move(pool).value();
  for (const RawStream raw : raw_streams_->handles()) {
    const Result<StreamRef> stream = pool_->adopt_stream(raw);
    if (!stream.ok()) {
      return Status{stream.error(),
                    std::string("the pool did not take a stream: ") + to_string(stream.error())};
    }
    streams_.push_back(stream.value());
  }
  return {};
}

Result<void, Status> TraceRun::open_work(const Place& place) {
  if (device_.simulated != nullptr) {
    work_ = make_simulated_work(*device_.simulated, place.memory, raw_streams_->handles());
    return {};
  }
  auto work = make_cuda_work(raw_streams_->handles());
  if (!work.ok()) return work.error();
  work_ = std::move(work).value();
  return {};
}

void TraceRun::maintain() {
  // A thread that exists has its time on the device's own clock.
  const bool is_beside = device_.simulated != nullptr && !maintainer_.joinable();
  if (is_beside) device_.simulated->begin_background();
  pool_->maintain();
  if (is_beside) device_.simulated->end_background();
}

void TraceRun::pass_time(std::uint64_t ns) {
  if (device_.simulated != nullptr) {
    device_.simulated->advance_ns(ns);
  } else {
    clock_.advance_ns(ns);
  }
  maintain();
}

void TraceRun::keep_pace(std::uint64_t ns) {
  pace_ns_ += ns;
  const std::uint64_t now_ns = device_.backend->clock().now_ns();
  if (now_ns >= pace_ns_) return;
  if (device_.simulated != nullptr) {
    device_.simulated->advance_ns(pace_ns_ - now_ns);
  } else {
    std::this_thread::sleep_for(std::chrono::nanoseconds(pace_ns_ - now_ns));
  }
}

void TraceRun::maintain_if_due() {
  const std::uint64_t now_ns = device_.backend->clock().now_ns();
  if (now_ns < due_ns_) return;
  due_ns_ = now_ns + kMaintainNs;
  maintain();
}

Result<PassFigures, Status> TraceRun::play() {
  const auto start = std::chrono::steady_clock::now();
  pool_->reset_peaks();
  const StatsV1 before = pool_->stats();
  PassFigures played;
  if (const auto done = play_steps(played); !done.ok()) return done.error();
  PassFigures figures = difference(pool_->stats(), before);
  figures.operations = played.operations;
  figures.failed = played.failed;
  figures.served_after_wait = played.served_after_wait;
  if (const auto done = end_pass(); !done.ok()) return done.error();
  figures.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return figures;
}

Result<void, Status> TraceRun::play_steps(PassFigures& figures) {
  pace_ns_ = device_.backend->clock().now_ns();
  for (const Step& step : steps_) {
    if (step.kind == StepKind::maintain) {
      if (mode_ != Mode::busy) {
        pass_time(step.amount);
      } else if (setting_.is_paced) {
        keep_pace(step.amount);
      }
      continue;
    }
    const auto done =
        step.kind == StepKind::allocate ? allocate(step, figures) : free(slots_[step.slot]);
    if (!done.ok()) return done.error();
    ++figures.operations;
    if (mode_ != Mode::busy) continue;
    if (setting_.maintains_inline) maintain_if_due();
    if (setting_.is_behind && figures.operations % kStallOperations == 0) {
      if (const auto given = work_->stall(step.stream, kStallNs); !given.ok()) return given.error();
    }
  }
  return {};
}

Result<void, Status> TraceRun::allocate(const Step& step, PassFigures& figures) {
  const StreamRef stream = streams_[step.stream];
  Result<void*> block = pool_->allocate(step.amount, stream);
  if (!block.ok() && work_ != nullptr) {
    if (const auto waited = work_->wait_for_all(); !waited.ok()) return waited.error();
    // Closes the epochs of what was freed, and sees them complete.
    maintain();
    maintain();
    block = pool_->allocate(step.amount, stream);
    if (block.ok()) ++figures.served_after_wait;
  }
  if (!block.ok()) ++figures.failed;
  Slot& slot = slots_[step.slot];
  slot.pointer = block.value();
  slot.stream = step.stream;
  if (work_ == nullptr || slot.pointer == nullptr) return {};
  slot.pattern = {reinterpret_cast<DeviceAddress>(slot.pointer), step.amount, seed_of(blocks_++)};
  return work_->fill(step.stream, slot.pattern);
}

Result<void, Status> TraceRun::free(Slot& slot) {
  if (slot.pointer == nullptr) return {};
  if (work_ != nullptr) {
    if (const auto given = work_->check(slot.stream, slot.pattern); !given.ok()) {
      return given.error();
    }
  }
  if (!pool_->deallocate(slot.pointer, streams_[slot.stream])) ++refused_frees_;
  slot.pointer = nullptr;
  return {};
}

Result<void, Status> TraceRun::end_pass() {
  for (Slot& slot : slots_) {
    if (const auto done = free(slot); !done.ok()) return done.error();
  }
  if (work_ != nullptr) {
    if (const auto waited = work_->wait_for_all(); !waited.ok()) return waited.error();
  }
  pool_->drain_caches();
  return {};
}

Result<Mismatches, Status> TraceRun::mismatches() {
  if (work_ == nullptr) return Mismatches();
  return work_->mismatches();
}

std::string TraceRun::find_fault() const {
  if (refused_frees_ != 0) {
    return "the pool refused " + std::to_string(refused_frees_) + " frees of its own blocks";
  }
  return tools::find_violation(device_);
}

}  // namespace gpupool::gpu_tests
