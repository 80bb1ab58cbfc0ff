// A fixed amount of work, for counting instructions: run under callgrind at two amounts, the
// difference is what the work costs, start and end of the program left out.
//
//   hit_loop pair BYTES COUNT      COUNT pairs of BYTES
//   hit_loop record BYTES COUNT    the same while the pool records to /dev/null, whose own thread
//                                  counts as well
//   hit_loop live BLOCKS COUNT     COUNT pairs of 4 KiB beside BLOCKS live blocks
//   hit_loop replay TRACE PASSES   PASSES warm passes of a trace, whose operations it prints
//
// instruction_gate.py runs it.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>

#include "bench/support/bench_pool.h"
#include "bench/support/live_blocks.h"
#include "bench/support/pair_loop.h"
#include "bench/support/sleeping_thread.h"
#include "bench/support/trace_player.h"

namespace gpupool::bench {
namespace {

constexpr std::size_t kHotBytes = 4096;

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0) {
    give_up("'" + std::string(text) + "' is not a whole number above 0");
  }
  return value;
}

void run_pairs(std::uint64_t bytes, std::uint64_t count) {
  GpupoolPairLoop* const loop = gpupool_pair_open(bytes);
  gpupool_pair_run(loop, count);
  gpupool_pair_close(loop);
}

void run_recorded_pairs(std::uint64_t bytes, std::uint64_t count) {
  GpupoolPairLoop* const loop = gpupool_pair_open(bytes);
  gpupool_pair_record(loop, count);
  gpupool_pair_run(loop, count);
  gpupool_pair_stop_recording(loop);
  gpupool_pair_close(loop);
}

void run_beside_live(std::uint64_t live, std::uint64_t count) {
  BenchPool pool;
  const LiveBlocks blocks(pool, live);
  for (std::uint64_t i = 0; i < count; ++i) {
    pool.deallocate(pool.allocate(kHotBytes, blocks.stream()), blocks.stream());
  }
}

void run_replay(const char* path, std::uint64_t passes) {
  TracePlayer player(path);
  // The first pass grows the pool; it is there at either amount of work.
  for (std::uint64_t pass = 0; pass <= passes; ++pass) {
    player.play();
    player.end_pass();
  }
  std::printf("%llu\n", static_cast<unsigned long long>(player.operation_count()));
}

}  // namespace
}  // namespace gpupool::bench

int main(int argc, char** argv) {
  using namespace gpupool::bench;
  const std::string_view mode = argc == 4 ? argv[1] : "";
  const SleepingThread second_thread;
  if (mode == "pair") {
    run_pairs(number(argv[2]), number(argv[3]));
  } else if (mode == "record") {
    run_recorded_pairs(number(argv[2]), number(argv[3]));
  } else if (mode == "live") {
    run_beside_live(number(argv[2]), number(argv[3]));
  } else if (mode == "replay") {
    run_replay(argv[2], number(argv[3]));
  } else {
    give_up("usage: hit_loop pair|record BYTES COUNT | live BLOCKS COUNT | replay TRACE PASSES");
  }
  return 0;
}
