#include "tests/scenarios/run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace gpupool::test {
namespace {

constexpr double kSecondNs = 1e9;
// Upkeep of the exporter's thread is more frequent; no rule sees the difference.
constexpr double kMaintainSeconds = 0.5;

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "scenario: %s\n", what.c_str());
  std::exit(2);
}

std::unique_ptr<Pool> make_pool(SimulatedBackend& card, const PoolOptions& options) {
  auto pool = Pool::create(card, options);
  if (!pool.ok()) give_up(pool.error().message);
  return std::move(pool.value());
}

SimulatedDeviceOptions device_options(std::uint64_t card_bytes) {
  SimulatedDeviceOptions options;
  options.capacity_bytes = card_bytes;
  options.on_violation = give_up;
  return options;
}

std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  std::uint64_t state = 0xcbf29ce484222325ULL ^ seed;
  for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return state;
}

}  // namespace

Process::Process(const ProcessOptions& options, double now)
    : start_seconds_(now),
      card_(device_options(options.card_bytes)),
      compute_raw_(card_.create_stream()),
      beside_raw_(card_.create_stream()),
      pool_(make_pool(card_, options.pool)),
      collector_(*pool_) {
  advance_to(now);
  compute_ = pool_->adopt_stream(compute_raw_).value();
  beside_ = pool_->adopt_stream(beside_raw_).value();
}

Process::~Process() { card_.complete_all(); }

double Process::now() const { return static_cast<double>(card_.clock().now_ns()) / kSecondNs; }

void Process::advance_to(double seconds) {
  const auto target = static_cast<std::uint64_t>(seconds * kSecondNs);
  const std::uint64_t now_ns = card_.clock().now_ns();
  if (target > now_ns) card_.advance_ns(target - now_ns);
}

void* Process::take_on(StreamRef stream, std::uint64_t bytes, const char* tag) {
  AllocationRequest request;
  request.bytes = bytes;
  if (tag != nullptr) request.tag = pool_->find_tag(tag).value();
  const auto block = pool_->allocate(request, stream);
  if (!block.ok()) throw RequestFailed();
  return block.value();
}

void Process::give_on(StreamRef stream, void* block) {
  if (!pool_->deallocate(block, stream)) give_up("a free was refused");
}

void Process::begin_capture(CapturePoolId id) {
  card_.begin_capture(compute_raw_);
  if (!pool_->begin_capture(compute_, id).ok()) give_up("a capture was refused");
}

void Process::end_capture(CapturePoolId id) {
  if (!pool_->end_capture(compute_).ok()) give_up("the end of a capture was refused");
  card_.end_capture(compute_raw_);
  if (!pool_->end_allocate_to_pool(id).ok()) give_up("the end of a private pool was refused");
}

void Process::hang_beside() {
  SimulatedWork work;
  work.until_completed = true;
  if (!card_.launch(beside_raw_, work).ok()) give_up("work was refused");
}

void Process::others_take(std::uint64_t bytes, std::uint64_t left) {
  const std::uint64_t free = card_.memory_info().value().free_bytes + others_;
  others_ = std::min(bytes, free - std::min(free, left));
  if (!card_.set_taken_by_others(others_).ok()) give_up("others could not take memory");
}

void Process::set_capacity(std::uint64_t bytes) {
  if (!pool_->set_capacity(bytes).ok()) give_up("the capacity was refused");
}

void Process::launch(RawStream stream, double seconds) {
  SimulatedWork work;
  work.duration_ns = static_cast<std::uint64_t>(seconds * kSecondNs);
  if (!card_.launch(stream, work).ok()) give_up("work was refused");
}

Run::Run(std::string name, std::uint64_t seed, std::set<std::string> families)
    : name_(std::move(name)),
      seed_(seed),
      chance_(hash(name_, seed)),
      recorder_(std::move(families)) {}

std::string Run::job_id() const { return name_ + "-" + std::to_string(seed_); }

LabelText Run::labels_of(const ProcessOptions& options) const {
  const std::string job_id = Run::job_id() + (options.job.empty() ? "" : "/" + options.job);
  const std::string rank = std::to_string(options.rank);
  const std::string host = "node-" + Run::job_id();
  return "job=\"gpupool-" + options.kind + "\", instance=\"" + host + ":" +
         std::to_string(10064 + options.rank) + "\", job_id=\"" + job_id + "\", rank=\"" + rank +
         "\", local_rank=\"" + rank + "\", world_size=\"" + std::to_string(options.world_size) +
         "\", host=\"" + host + "\"";
}

Process& Run::start(const ProcessOptions& options) {
  const auto known = std::find_if(targets_.begin(), targets_.end(), [&](const Target& target) {
    return target.rank == options.rank && target.job == options.job;
  });
  Target& target = known != targets_.end() ? *known : targets_.emplace_back();
  target.labels = labels_of(options);
  target.rank = options.rank;
  target.job = options.job;
  target.process = std::make_unique<Process>(options, now_);
  return *target.process;
}

void Run::kill(Process& process) {
  for (Target& target : targets_) {
    if (target.process.get() == &process) target.process.reset();
  }
}

void Run::end(Process& process) {
  targets_.remove_if([&](const Target& target) { return target.process.get() == &process; });
}

void Run::pass(double seconds) {
  for (const Target& target : targets_) {
    if (target.process) now_ = std::max(now_, target.process->now());
  }
  const double end = now_ + seconds;
  while (now_ < end) {
    const double scrape_at = static_cast<double>(scrapes_) * kScrapeSeconds;
    const double maintain_at = maintained_ + kMaintainSeconds;
    now_ = std::max(now_, std::min({end, scrape_at, maintain_at}));
    for (const Target& target : targets_) {
      if (target.process) target.process->advance_to(now_);
    }
    if (now_ >= maintain_at) {
      maintained_ = now_;
      for (const Target& target : targets_) {
        if (target.process) target.process->pool().maintain();
      }
    }
    if (now_ >= scrape_at) scrape();
  }
}

void Run::note_failure() {
  for (const Target& target : targets_) {
    if (!target.process || target.process->pool().stats().failures == 0) continue;
    failure_ = target.process->now();
    failure_text_ = target.process->pool().last_failure().text();
  }
}

void Run::scrape() {
  const std::size_t index = scrapes_++;
  const bool is_lost = lose_every_ != 0 && index % lose_every_ == lose_every_ - 1;
  for (const Target& target : targets_) {
    const bool answers = target.process != nullptr && !is_lost;
    recorder_.add(index, "up{" + target.labels + "}", answers ? 1 : 0);
    if (!answers) continue;
    recorder_.add(index, target.process->scrape(), target.labels,
                  [&](const std::string& family, double value) {
                    // Of the machine's clock; promtool's time begins with the run.
                    return family == "gpupool_start_time_seconds" ? target.process->start_seconds()
                                                                  : value;
                  });
  }
}

double Run::between(double low, double high) {
  return low + (high - low) * static_cast<double>(chance_.next() >> 11) * 0x1.0p-53;
}

}  // namespace gpupool::test
