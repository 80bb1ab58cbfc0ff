#include "tests/support/world.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "gpupool/size_text.h"
#include "tests/support/units.h"

namespace gpupool::test {
namespace {

/// Far apart, so that a large block costs no more than a few touched host pages.
constexpr std::uint64_t kPatternStep = 256 << 10;

/// Some of the block's bytes: each is the pattern's byte of the same place modulo 8.
template <class Visit>
void visit_pattern(char* pointer, std::uint64_t bytes, std::uint64_t pattern, Visit visit) {
  const auto visit_at = [&](std::uint64_t at) {
    const std::uint64_t turned = std::rotr(pattern, static_cast<int>(at % 8 * 8));
    visit(pointer + at, &turned, static_cast<std::size_t>(std::min<std::uint64_t>(bytes - at, 8)));
  };
  for (std::uint64_t at = 0; at < bytes; at += kPatternStep) visit_at(at);
  if (bytes > 8) visit_at(bytes - 8);
}

SimulatedDeviceOptions device_options(const WorldOptions& options) {
  SimulatedDeviceOptions device;
  device.capacity_bytes = options.capacity_bytes;
  device.memory = options.memory;
  return device;
}

}  // namespace

std::string to_text(const WorldOptions& options) {
  std::string text =
      std::string(to_string(options.backing)) + ", " +
      (options.memory == SimulatedMemory::real ? "real" : "address_only") + ", capacity " +
      format_size(options.capacity_bytes) + ", reserve " + format_size(options.reserve_bytes) +
      ", " + std::to_string(options.stream_count) + " streams, caches " +
      format_size(options.cache_small_bytes) + " and " + format_size(options.cache_large_bytes);
  if (options.recycling != Recycling::off) {
    text += std::string(", recycling ") + to_string(options.recycling) + ", slack " +
            std::to_string(options.slack) + ", alias_reuse " + to_string(options.alias_reuse);
  }
  if (options.policy != CrossStreamPolicy::when_done) {
    text += std::string(", policy ") + to_string(options.policy);
  }
  if (options.lets_others_in) text += ", others come in between";
  if (options.failing_call == 0) return text;
  return text + ", call " + std::to_string(options.failing_call) + " fails with " +
         to_string(options.failing_error);
}

World::World(const WorldOptions& given)
    : options(given),
      device(device_options(given)),
      faulty(device),
      occupancy(given.capacity_bytes, given.reserve_bytes) {
  PoolOptions pool_options;
  pool_options.backing = options.backing;
  pool_options.reserve_bytes = options.reserve_bytes;
  pool_options.cache_small_bytes = options.cache_small_bytes;
  pool_options.cache_large_bytes = options.cache_large_bytes;
  pool_options.runtime.recycling = options.recycling;
  pool_options.runtime.slack = options.slack;
  // The lists have hardly any time, of which waiting could be a share; and judge what is held.
  pool_options.runtime.recycling_wait = 1.0;
  pool_options.runtime.alias_reuse = options.alias_reuse;
  pool_options.runtime.out_of_memory.wait_ns = options.out_of_memory_wait_ns;
  pool_options.runtime.policy = options.policy;
  // Below and above what a chunk may serve, and more than there is.
  pool_options.watched_sizes = {kKiB * kKiB * kKiB, 256 * kKiB, 48 * kKiB, 2 * kKiB};
  pool_options.observer = &observer;
  pool_options.misuse_handler = [this](const MisuseReport&) { ++handled_misuses; };
  if (options.policy == CrossStreamPolicy::wait) model.leave_order_to_device();
  has_faults = options.failing_call > 0;
  if (has_faults) faulty.fail_nth_of_all(options.failing_call, options.failing_error);
  auto created = Pool::create(faulty, pool_options);
  if (!created.ok()) {
    start_fault_ = created.error().message;
    return;
  }
  pool = std::move(created).value();
  streams_.resize(options.stream_count);
  for (StreamSlot slot = 0; slot < options.stream_count; ++slot) start_stream(slot, true);
  if (options.lets_others_in) watch_event_calls();
}

World::~World() {
  // The pool waits for work that may still use its memory, also where a run ended early.
  device.complete_all();
}

std::optional<std::string> World::run(const OperationList& list) {
  if (pool == nullptr) {
    if (faulty.failed_count() == 0) return "the pool does not start: " + start_fault_;
    if (device.object_count() != 0) return "a pool that did not start leaves objects behind";
    return std::nullopt;
  }
  list_ = &list;
  for (next_ = 0; next_ < list.size();) {
    const std::size_t index = next_++;
    const Operation& operation = list[index];
    outer_ = &operation;
    std::visit([this](const auto& it) { it.apply(*this); }, operation);
    outer_ = nullptr;
    if (!failure_ && has_anything_new()) check();
    if (failure_) {
      return "after operation " + std::to_string(index) + ", " + to_text(operation) + ": " +
             *failure_;
    }
  }
  finish();
  if (failure_) return "at the end: " + *failure_;
  return std::nullopt;
}

World::Stream* World::find_stream(StreamSlot slot) {
  if (slot >= streams_.size() || streams_[slot].key == 0) return nullptr;
  return &streams_[slot];
}

World::Block* World::find_block(BlockName name) {
  const auto found = blocks.find(name);
  return found == blocks.end() ? nullptr : &found->second;
}

void World::start_stream(StreamSlot slot, bool is_adopted) {
  if (slot >= streams_.size() || streams_[slot].key != 0) return;
  Stream& stream = streams_[slot];
  stream.raw = device.create_stream();
  stream.key = ++last_key_;
  stream.is_adopted = is_adopted;
  raw_by_key_[stream.key] = stream.raw;
  if (!is_adopted) return;
  const bool is_known = retry_if_faulted([&] {
    const auto ref = pool->adopt_stream(stream.raw);
    if (ref.ok()) stream.ref = ref.value();
    return ref.ok();
  });
  if (!is_known) fail("a stream is not adopted");
}

void World::end_stream(StreamSlot slot) {
  Stream* stream = find_stream(slot);
  if (stream == nullptr) return;
  // What the program will wait for when it frees blocks that this stream used.
  const EventHandle event = device.create_event().value();
  if (!device.record_event(event, stream->raw).ok()) fail("an event is not recorded");
  last_event_[stream->key] = event;
  raw_by_key_.erase(stream->key);
  if (stream->is_adopted) {
    const std::uint64_t faults = faulty.failed_count();
    if (!pool->release_stream(stream->ref)) fail("a stream is not released");
    if (faulty.failed_count() > faults) has_lost_completions = true;
    released_stream = stream->ref;
  } else {
    has_lost_completions = true;
    unannounced_.insert(stream->key);
    // What is live on it, and what was on a released one, whose number it may have had.
    for (auto& [name, block] : blocks) {
      const bool has_ended = block.owner == stream->key || raw_by_key_.count(block.owner) == 0;
      if (has_ended) block.waits_for = stream->key;
    }
  }
  device.destroy_stream(stream->raw);
  *stream = Stream();
}

void World::order(const Stream& later, StreamKey earlier) {
  if (later.key == earlier) return;
  bool ok = true;
  if (const auto alive = raw_by_key_.find(earlier); alive != raw_by_key_.end()) {
    const EventHandle event = device.create_event().value();
    ok = device.record_event(event, alive->second).ok() &&
         device.wait_event(later.raw, event).ok() && device.destroy_event(event).ok();
  } else {
    ok = device.wait_event(later.raw, last_event_.at(earlier)).ok();
  }
  if (!ok) fail("the device refuses to order two streams: " + device.last_violation());
  model.order(later.key, earlier);
}

void World::launch(Block& block, const Stream& stream, std::uint64_t duration_ns,
                   bool until_completed) {
  for (const Use& use : block.uses) order(stream, use.stream);
  const bool is_first = block.uses.empty();
  const auto known = std::find_if(block.uses.begin(), block.uses.end(),
                                  [&](const Use& use) { return use.stream == stream.key; });
  if (known == block.uses.end()) {
    block.uses.push_back({.stream = stream.key});
  } else if (!known->is_at_free) {
    known->is_recorded = false;
  }

  const auto address = reinterpret_cast<std::uint64_t>(block.pointer);
  SimulatedWork work;
  work.address = address;
  work.bytes = block.bytes;
  work.duration_ns = duration_ns;
  work.until_completed = until_completed;
  const bool is_real = options.memory == SimulatedMemory::real;
  work.body = [done = model.give_work(stream.key, address, block.bytes), is_first, is_real,
               pointer = block.pointer, bytes = block.bytes, pattern = block.pattern,
               corruption = corruption_] {
    *done = true;
    if (!is_real) return;
    visit_pattern(pointer, bytes, pattern, [&](char* at, const void* value, std::size_t length) {
      if (!is_first && std::memcmp(at, value, length) != 0) {
        *corruption = "a block's bytes were overwritten";
      }
      std::memcpy(at, value, length);
    });
  };
  if (!device.launch(stream.raw, std::move(work)).ok()) {
    fail("the device refuses work: " + device.last_violation());
  }
}

// Checks.

bool World::has_anything_new() const {
  return options.failing_call == 0 || faulty.failed_count() > 0;
}

void World::check() {
  if (device.violation_count() != 0) fail("violation: " + device.last_violation());
  if (!corruption_->empty()) fail(*corruption_);
  pool->check_invariants();
  const StatsV1 stats = pool->stats();
  if (const auto wrong = model.compare(stats)) fail(*wrong);
  check_books(stats);
  check_events(stats);
  check_map(stats);
  check_growth(stats);
  check_moves();
}

void World::check_books(const StatsV1& stats) {
  if (stats.held_bytes != stats.live_requested_bytes + stats.waste_bytes + stats.cached_bytes +
                              stats.pending_bytes + stats.free_bytes) {
    fail("held is not live + waste + cached + pending + free");
  }
  if (stats.held_bytes != device.held_bytes()) {
    fail("held is " + std::to_string(stats.held_bytes) + ", the device counts " +
         std::to_string(device.held_bytes()));
  }
  const auto sum = [](const auto& values) {
    return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
  };
  if (const std::uint64_t back = observer.taken_bytes() - device.held_bytes();
      sum(stats.released_bytes_by_reason) != back) {
    fail("released by reason is " + std::to_string(sum(stats.released_bytes_by_reason)) +
         ", the device took back " + std::to_string(back));
  }
  if (sum(stats.trimmed_bytes_by_reason) !=
      stats.released_bytes_by_reason[static_cast<std::size_t>(ReleaseReason::trim)]) {
    fail("what was trimmed is not what was released by trims");
  }
  if (!has_faults &&
      stats.released_bytes_by_reason[static_cast<std::size_t>(ReleaseReason::retry)] != 0) {
    fail("what no driver call refused was tried again");
  }
  if (options.recycling != Recycling::off && !has_faults &&
      stats.fallbacks !=
          stats.fallbacks_by_reason[static_cast<std::size_t>(FallbackReason::contiguous)]) {
    fail("a request was served outside of the arena, which has addresses enough");
  }
  if (stats.held_bytes > stats.limit_bytes) fail("more is held than the limit");
  if (stats.held_bytes > stats.peak_held_bytes) fail("more is held than peak_held_bytes");
  if (stats.held_bytes < options.reserve_bytes) fail("less is held than the reserve");
  if (stats.largest_free_block_bytes > stats.free_bytes) fail("largest_free_block > free");
  if (stats.largest_satisfiable_bytes < stats.largest_free_block_bytes) {
    fail("largest_satisfiable < largest_free_block");
  }
  if (!(stats.fragmentation_ratio >= 0 && stats.fragmentation_ratio <= 1) ||
      !(stats.raw_fragmentation_ratio >= 0 && stats.raw_fragmentation_ratio <= 1)) {
    fail("a fragmentation ratio is outside of 0 to 1");
  }
  const std::uint64_t misuses =
      std::accumulate(stats.misuses.begin(), stats.misuses.end(), std::uint64_t{0});
  if (misuses != handled_misuses) fail("a misuse was counted and the handler not told");
}

void World::check_events(const StatsV1& stats) {
  const auto expect = [&](SlowPathEventKind kind, std::uint64_t count) {
    if (observer.count(kind) == count) return;
    fail(std::string("events of ") + to_string(kind) + ": " + std::to_string(observer.count(kind)) +
         ", must be " + std::to_string(count));
  };
  expect(SlowPathEventKind::driver_call, stats.driver_calls);
  expect(SlowPathEventKind::failure, stats.failures);
  expect(SlowPathEventKind::miss, stats.misses - stats.failures);
  expect(SlowPathEventKind::fallback, stats.fallbacks);
  expect(SlowPathEventKind::misuse, handled_misuses);
  expect(SlowPathEventKind::trim, std::accumulate(stats.trims_by_reason.begin(),
                                                  stats.trims_by_reason.end(), std::uint64_t{0}));
  if (observer.failed_driver_calls() != stats.driver_failures) fail("failed driver calls differ");
}

void World::check_map(const StatsV1& stats) {
  std::uint64_t bytes = 0;
  std::uint64_t live = 0;
  std::array<std::uint64_t, 4> by_state{};
  std::uint64_t arena_end = 0;
  std::array<std::uint64_t, kMaxWatchedSizes> unusable{};
  pool->visit_blocks([&](const BlockInfo& info) {
    bytes += info.bytes;
    by_state[static_cast<std::size_t>(info.state)] += info.bytes;
    if (options.backing == Backing::vmm && !info.is_fallback) {
      if (info.address < arena_end) fail("visit_blocks shows bytes twice");
      arena_end = info.address + info.bytes;
    }
    for (std::size_t i = 0; info.state == BlockState::free && i < stats.watched_count; ++i) {
      const bool is_run = info.tier == Tier::run;
      if (!is_run || info.bytes < stats.watched[i].bytes) unusable[i] += info.bytes;
    }
    if (info.state != BlockState::live) return;
    ++live;
    const auto known = model.blocks().find(info.address);
    if (known == model.blocks().end()) return fail("visit_blocks shows a block that is not live");
    if (known->second.bytes != info.requested_bytes || info.bytes < info.requested_bytes ||
        known->second.tag != info.tag.index()) {
      fail("visit_blocks shows a live block with other numbers");
    }
  });
  if (live != model.blocks().size()) fail("visit_blocks does not show every live block");
  if (by_state[static_cast<std::size_t>(BlockState::cached)] != stats.cached_bytes) {
    fail("visit_blocks shows other cached bytes");
  }
  if (by_state[static_cast<std::size_t>(BlockState::pending)] != stats.pending_bytes) {
    fail("visit_blocks shows other pending bytes");
  }
  for (std::size_t i = 0; i < stats.watched_count; ++i) {
    constexpr std::uint64_t kChunkBytes = std::uint64_t{128} << 10;
    const WatchedSize& size = stats.watched[i];
    // In a chunk there may be room for what is no larger than a chunk.
    const bool is_right = size.bytes > kChunkBytes ? size.unusable_free_bytes == unusable[i]
                                                   : size.unusable_free_bytes <= unusable[i];
    if (!is_right) fail("visit_blocks shows other bytes that are too small for a watched size");
  }
  // All that is held, but for the tails of slabs and what the driver would not take back.
  const std::uint64_t live_block_bytes = by_state[static_cast<std::size_t>(BlockState::live)];
  const std::uint64_t tails = stats.live_requested_bytes + stats.waste_bytes - live_block_bytes;
  const std::uint64_t stuck = stats.free_bytes - stats.mapped_free_bytes;
  if (bytes + tails + stuck != stats.held_bytes)
    fail("visit_blocks does not show all that is held");
}

void World::finish() {
  if (!device.set_taken_by_others(0).ok()) fail("memory of others is not given back");
  device.complete_all();
  for (StreamSlot slot = 0; slot < streams_.size(); ++slot) start_stream(slot, true);
  while (!blocks.empty()) Free{blocks.begin()->first, 0, SizeHint::none, false}.apply(*this);
  device.complete_all();
  pool->trim(0);
  check();
  // A fault may have hit even that; the next trim makes up for it.
  faulty.clear();
  if (has_faults) pool->trim(0);
  check();
  // What is kept for the reserve is in whole mappings, and so may be more than it.
  if (!has_lost_completions && options.reserve_bytes == 0 && device.held_bytes() != 0) {
    fail("after everything was freed and trimmed " + std::to_string(device.held_bytes()) +
         " bytes are held");
  }
  last_stats = pool->stats();
  pool.reset();
  for (const auto& [key, event] : last_event_) {
    if (!device.destroy_event(event).ok()) fail("an event is not destroyed");
  }
  if (!corruption_->empty()) fail(*corruption_);
  if (device.violation_count() != 0) fail("violation: " + device.last_violation());
  if (device.object_count() != 0) {
    fail(std::to_string(device.object_count()) + " objects are left behind");
  }
}

}  // namespace gpupool::test
