#include "cache/thread_counters.h"

#include <limits>
#include <numeric>

namespace gpupool::internal {
namespace {

template <std::size_t N>
std::uint64_t sum(const std::array<std::uint64_t, N>& values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

template <std::size_t N>
void add(const std::array<Relaxed<std::uint64_t>, N>& from, std::array<std::uint64_t, N>& to) {
  for (std::size_t i = 0; i < N; ++i) to[i] += from[i].get();
}

template <std::size_t N>
void clear(std::array<Relaxed<std::uint64_t>, N>& values) {
  for (auto& value : values) value.set(0);
}

}  // namespace

std::uint64_t CounterTotals::live_block_bytes() const noexcept {
  std::uint64_t bytes = run_bytes_out - run_bytes_back;
  for (std::size_t bin = 0; bin < kBinCount; ++bin) {
    bytes += (allocations[bin] - frees[bin]) * kBinBytes[bin];
  }
  return at_least_none(static_cast<std::int64_t>(bytes));
}

std::uint64_t CounterTotals::served() const noexcept {
  return sum(allocations) + sum(large_allocations);
}

std::uint64_t CounterTotals::freed() const noexcept { return sum(frees) + large_frees; }

void ThreadCounters::start() {
  allocated_bytes.set(0);
  freed_bytes.set(0);
  high.set(0);
  low.set(std::numeric_limits<std::int64_t>::min());
  large_frees.set(0);
  run_bytes_out.set(0);
  run_bytes_back.set(0);
  is_alone.set(false);
  clear(large_allocations);
  clear(tag_bytes);
  for (Bin& bin : bins) {
    bin.allocations.set(0);
    bin.frees.set(0);
  }
  clear(shared_hits);
  clear(moved);
  clear(hit_count);
  hit_ns.set(0);
}

void ThreadCounters::add_to(CounterTotals& totals) const {
  for (std::size_t bin = 0; bin < kBinCount; ++bin) {
    const Pair blocks = read(bins[bin].allocations, bins[bin].frees);
    totals.allocations[bin] += blocks.up;
    totals.frees[bin] += blocks.down;
  }
  const Pair requested = read(allocated_bytes, freed_bytes);
  totals.allocated_bytes += requested.up;
  totals.freed_bytes += requested.down;
  add(large_allocations, totals.large_allocations);
  totals.large_frees += large_frees.get();
  const Pair run_bytes = read(run_bytes_out, run_bytes_back);
  totals.run_bytes_out += run_bytes.up;
  totals.run_bytes_back += run_bytes.down;
  add(tag_bytes, totals.tag_bytes);
  add(shared_hits, totals.shared_hits);
  add(moved, totals.moved);
  add(hit_count, totals.hit_duration.count);
  totals.hit_duration.sum_ns += hit_ns.get();
}

}  // namespace gpupool::internal
