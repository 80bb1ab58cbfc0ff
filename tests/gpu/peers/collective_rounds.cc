// Collectives on blocks of pools, checked word by word, while others allocate on every device.
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/peers/churn.h"
#include "tests/gpu/peers/collectives.h"
#include "tests/gpu/peers/communicators.h"

namespace gpupool::gpu_tests {
namespace {

constexpr std::uint64_t kRoundsPerBlock = 10;
constexpr std::uint64_t kLargestPower = 23;  // of two, the sizes of what a rank gives: to 16 MiB

using Streams = std::vector<std::unique_ptr<PoolStream>>;

/// Blocks of every rank, for some rounds.
class Batch {
 public:
  Batch(Communicators& communicators, Streams& streams, Watch& watch, std::uint64_t bytes)
      : communicators_(communicators), streams_(streams), watch_(watch), bytes_(bytes) {
    for (auto& stream : streams_) {
      RankBuffers rank;
      rank.stream = stream->raw();
      rank.sent = stream->get_block(bytes_, AllocationClass::contiguous);
      rank.received = stream->get_block(bytes_, AllocationClass::contiguous);
      rank.gathered = stream->get_block(bytes_ * streams_.size(), AllocationClass::contiguous);
      ranks_.push_back(rank);
    }
  }

  const std::vector<RankBuffers>& ranks() const { return ranks_; }
  std::uint64_t bytes() const { return bytes_; }
  void run_round(std::uint64_t round);
  void synchronize() {
    for (auto& stream : streams_) stream->synchronize();
  }
  /// In the order of each rank's stream, which comes after all that the rank has done.
  void free() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (void* block : {ranks_[rank].sent, ranks_[rank].received, ranks_[rank].gathered}) {
        streams_[rank]->free_block(block);
      }
    }
  }

 private:
  void check(std::uint64_t round);

  Communicators& communicators_;
  Streams& streams_;
  Watch& watch_;
  const std::uint64_t bytes_;
  std::vector<RankBuffers> ranks_;
};

void Batch::run_round(std::uint64_t round) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    PoolStream& stream = *streams_[rank];
    const OnDevice on(stream.device());
    stream.ramps().fill(stream.raw(), ranks_[rank].sent, bytes_, ramp_of(round, rank));
  }
  communicators_.launch(Operation::all_reduce, ranks_, bytes_, watch_);
  communicators_.launch(Operation::all_gather, ranks_, bytes_, watch_);
  check(round);
}

void Batch::check(std::uint64_t round) {
  Ramp sum;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) sum += ramp_of(round, rank);
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    PoolStream& stream = *streams_[rank];
    const OnDevice on(stream.device());
    stream.ramps().check(stream.raw(), ranks_[rank].received, bytes_, sum);
    for (std::size_t from = 0; from < ranks_.size(); ++from) {
      const char* const part = static_cast<char*>(ranks_[rank].gathered) + from * bytes_;
      stream.ramps().check(stream.raw(), part, bytes_, ramp_of(round, from));
    }
  }
}

std::uint64_t wrong_words(Streams& streams) {
  std::uint64_t words = 0;
  for (auto& stream : streams) {
    const OnDevice on(stream->device());
    words += stream->ramps().mismatches(stream->raw()).words;
  }
  return words;
}

/// What is loaded at the first launch of each kind is loaded now, while no thread waits for one
/// device in a call that keeps the launch on another from happening.
void warm_up(Communicators& communicators, Streams& streams, Watch& watch) {
  for (std::uint64_t power = 12; power <= kLargestPower + 1; power += 2) {
    Batch batch(communicators, streams, watch, std::uint64_t{1} << power);
    batch.run_round(~power);
    batch.synchronize();
    batch.free();
  }
}

}  // namespace

void run_collectives(Communicators& communicators, Task& task, bool is_registered) {
  Fleet fleet(task.cards, task.mode, capacity_of(task.mode), task.watch);
  Report& report = task.watch.report();
  {
    Streams streams;
    for (std::size_t i = 0; i < fleet.count(); ++i) {
      streams.push_back(std::make_unique<PoolStream>(fleet, i));
    }
    const std::uint64_t wrong_at_first = wrong_words(streams);  // of steps before this one
    warm_up(communicators, streams, task.watch);
    std::uint64_t wrong_before = wrong_words(streams);
    if (wrong_before != wrong_at_first)
      report.fault("collectives", "wrong before any other thread ran");
    const Churn churn(fleet);
    std::mt19937_64 random(is_registered ? 3 : 4);
    while (task.row.rounds < task.budget.rounds && !task.budget.is_over()) {
      const std::uint64_t power = std::uint64_t{1} << (12 + random() % (kLargestPower - 11));
      Batch batch(communicators, streams, task.watch, (power + random() % power) & ~3ULL);
      {
        std::optional<Registration> registration;
        if (is_registered) registration.emplace(communicators, batch.ranks(), batch.bytes());
        for (std::uint64_t i = 0; i < kRoundsPerBlock && task.row.rounds < task.budget.rounds;
             ++i) {
          batch.run_round(task.row.rounds);
          report.progress = ++task.row.rounds;
        }
        if (is_registered) batch.synchronize();
      }
      batch.free();
      const std::uint64_t wrong = wrong_words(streams);
      if (wrong != wrong_before) {
        report.fault("collectives", std::to_string(wrong - wrong_before) +
                                        " words were wrong in the rounds before " +
                                        std::to_string(task.row.rounds));
        wrong_before = wrong;
      }
    }
    task.row.others = churn.allocations();
  }
  task.row.pages_moved = fleet.pages_moved();
  fleet.expect_empty();
}

}  // namespace gpupool::gpu_tests
