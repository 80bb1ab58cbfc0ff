// The command line that the programs of this folder share: which systems, which measurements, text
// for a person on stdout and JSON into a file.
//
// The file is written anew after each system, so that a peer that ends the process does not take
// along what was measured before it. Thread safety: one thread.
#ifndef GPUPOOL_BENCH_PEERS_PROGRAM_H_
#define GPUPOOL_BENCH_PEERS_PROGRAM_H_

#include <functional>
#include <string>
#include <vector>

#include "bench/peers/measure.h"
#include "bench/peers/result.h"

namespace gpupool::bench {

struct SystemEntry {
  std::string name;
  std::function<SystemResult(const Plan&)> measure;
  bool needs_gpu = true;
};

/// A measurement that is of no system: its JSON text, with sentences for a person.
struct Section {
  std::string name;  // also its key in the JSON file
  std::function<Result<std::string, Status>(std::string& sentences)> measure;
  bool needs_gpu = true;
};

struct Program {
  std::string name;
  std::vector<SystemEntry> systems;
  std::vector<Section> sections;  // before the systems, while the process is fresh
};

/// Exit status: 0 where all that was asked for was measured; 1 where something was not; 2 for a
/// command line or trace that cannot be used.
int run_program(int argc, char** argv, const Program& program);

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_PROGRAM_H_
