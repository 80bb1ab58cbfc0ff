#include "tools/demo/player.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gpupool::tools {
namespace {

using std::chrono::nanoseconds;

// Operations less than this apart are played together: a sleep costs more than an operation.
constexpr nanoseconds kGrain = std::chrono::milliseconds(1);
// However far behind its pace, the player looks at the signals this often.
constexpr std::uint64_t kOperationsPerLook = 256;
// A trace without times must not spin.
constexpr nanoseconds kShortestTrack = std::chrono::milliseconds(10);
// Work that writes a new block, of the simulated device, at recorded speed.
constexpr double kWorkNs = 10'000;

constexpr double kNsPerUs = 1000;

}  // namespace

Result<std::unique_ptr<Player>, Status> Player::create(Device& device, Pool& pool,
                                                       const std::vector<Trace>& traces,
                                                       PlayerOptions options) {
  std::unique_ptr<Player> player(new Player(device, pool, std::move(options)));
  for (const Trace& trace : traces) {
    Track track;
    track.trace = &trace;
    auto raw_streams = DeviceStreams::create(device, trace.streams);
    if (!raw_streams.ok()) return raw_streams.error();
    track.raw_streams = std::move(raw_streams).value();
    player->tracks_.push_back(std::move(track));
    Track& added = player->tracks_.back();
    for (RawStream raw : added.raw_streams->handles()) {
      const Result<StreamRef> stream = pool.adopt_stream(raw);
      if (!stream.ok()) {
        return Status{stream.error(),
                      std::string("the pool did not take a stream: ") + to_string(stream.error())};
      }
      added.streams.push_back(stream.value());
    }
  }
  return player;
}

Player::~Player() {
  for (const Track& track : tracks_) {
    for (std::size_t i = 0; i < track.streams.size(); ++i) {
      // The default stream belongs to everybody and is the same reference in each track.
      if (track.trace->streams[i] != 0) pool_.release_stream(track.streams[i]);
    }
  }
}

PlayerCounts Player::play(StopSignal& stop) {
  due_ = std::chrono::steady_clock::now();
  next_tick_ = due_ + options_.tick_period;
  for (;;) {
    for (const Track& track : tracks_) {
      if (!play_track(track, stop)) return counts_;
    }
    ++counts_.rounds;
  }
}

bool Player::play_track(const Track& track, StopSignal& stop) {
  const Time start = due_;
  live_.assign(track.trace->slot_count, Live{});
  Time horizon = start;  // up to here, nothing is waited for
  bool goes_on = true;
  for (std::size_t i = 0; goes_on && i < track.trace->operations.size(); ++i) {
    const Operation& operation = track.trace->operations[i];
    due_ += nanoseconds(static_cast<std::int64_t>(static_cast<double>(operation.dt_us) * kNsPerUs /
                                                  options_.speed));
    if (due_ > horizon || i % kOperationsPerLook == 0) {
      goes_on = wait(due_, stop);
      horizon = std::chrono::steady_clock::now() + kGrain;
      if (!goes_on) break;
    }
    if (operation.kind == OperationKind::complete) continue;
    ++counts_.operations;
    if (operation.kind == OperationKind::allocate) {
      allocate(track, operation);
    } else {
      release(track, operation.slot);
    }
  }
  // What the trace leaves. These count, too, as a recording has them.
  for (std::uint32_t slot = 0; slot < live_.size(); ++slot) {
    if (live_[slot].pointer == nullptr) continue;
    ++counts_.operations;
    release(track, slot);
  }
  if (!goes_on) return false;
  due_ = std::max(due_, start + kShortestTrack);
  return wait(due_, stop);
}

void Player::allocate(const Track& track, const Operation& operation) {
  const Result<void*> block = pool_.allocate(operation.bytes, track.streams[operation.stream]);
  live_[operation.slot] = {block.value(), operation.stream};
  if (!block.ok()) {
    ++counts_.failed;
    if (counts_.failed == 1 && options_.on_first_failure) options_.on_first_failure();
    return;
  }
  if (device_.simulated == nullptr || block.value() == nullptr) return;
  SimulatedWork work;
  work.address = reinterpret_cast<std::uintptr_t>(block.value());
  work.bytes = operation.bytes;
  work.duration_ns = static_cast<std::uint64_t>(kWorkNs / options_.speed);
  // Refused work is counted by the device, and the command ends with an error for it.
  static_cast<void>(
      device_.simulated->launch(track.raw_streams->handles()[operation.stream], std::move(work)));
}

void Player::release(const Track& track, std::uint32_t slot) {
  Live& live = live_[slot];
  // A refusal is reported by the pool's misuse handler.
  static_cast<void>(pool_.deallocate(live.pointer, track.streams[live.stream]));
  live.pointer = nullptr;
}

bool Player::wait(Time due, StopSignal& stop) {
  for (;;) {
    Time until = std::min(due, next_tick_);
    if (options_.end) until = std::min(until, *options_.end);
    if (stop.wait_until(until)) return false;
    const Time now = std::chrono::steady_clock::now();
    if (options_.end && now >= *options_.end) return false;
    if (now >= next_tick_) {
      if (options_.on_tick) options_.on_tick(counts_);
      next_tick_ = now + options_.tick_period;
    }
    if (now >= due) return true;
  }
}

}  // namespace gpupool::tools
