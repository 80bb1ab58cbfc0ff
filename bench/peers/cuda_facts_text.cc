#include <algorithm>

#include "bench/peers/cuda_facts.h"
#include "bench/peers/report.h"
#include "tools/terminal/units.h"

namespace gpupool::bench {
namespace {

using tools::fixed;
using tools::human_bytes;

Json to_json(const ReuseTrial& trial) {
  return {{"bytes", trial.bytes},
          {"has_neighbour", trial.has_neighbour},
          {"rounds", trial.rounds},
          {"rounds_with_pattern", trial.rounds_with_pattern},
          {"rounds_with_other", trial.rounds_with_other},
          {"rounds_at_same_address", trial.rounds_at_same_address}};
}

Json to_json(const StallTrial& trial) {
  return {{"call", trial.call},       {"bytes", trial.bytes},     {"rounds", trial.rounds},
          {"idle_us", trial.idle_us}, {"busy_us", trial.busy_us}, {"waited", trial.waited}};
}

std::string to_text(const ReuseTrial& trial) {
  return "  " + human_bytes(trial.bytes) + (trial.has_neighbour ? " beside a live one" : " alone") +
         ": own pattern in " + std::to_string(trial.rounds_with_pattern) + " of " +
         std::to_string(trial.rounds) + " rounds, other bytes in " +
         std::to_string(trial.rounds_with_other) + ", same address in " +
         std::to_string(trial.rounds_at_same_address) + "\n";
}

std::string to_text(const StallTrial& trial, double job_ms) {
  return "  " + trial.call + " of " + human_bytes(trial.bytes) + ": " + fixed(trial.idle_us, 1) +
         " us on an idle device, " + fixed(trial.busy_us, 1) +
         " us while another stream works for " + fixed(job_ms, 0) + " ms; that work was over in " +
         std::to_string(trial.waited) + " of " + std::to_string(trial.rounds) +
         " rounds when it came back\n";
}

std::string zeroing_sentence(const CudaMallocFacts& facts) {
  std::uint64_t rounds = 0;
  std::uint64_t dirty = 0;  // at least: a round may have both
  for (const ReuseTrial& trial : facts.reuse) {
    rounds += trial.rounds;
    dirty += std::max(trial.rounds_with_pattern, trial.rounds_with_other);
  }
  const StrangerTrial& stranger = facts.stranger;
  const std::uint64_t strange = stranger.pattern_bytes + stranger.other_bytes;
  const std::string found =
      dirty == 0 ? "cudaMalloc gave zeroed memory in all " + std::to_string(rounds) + " rounds"
                 : "cudaMalloc does not zero memory: old bytes in " + std::to_string(dirty) +
                       " of " + std::to_string(rounds) + " rounds";
  return found + ". After another process had filled " + human_bytes(stranger.filled_bytes) +
         " and ended, " + std::to_string(strange) + " of the first " +
         std::to_string(stranger.looked_at_bytes) + " bytes were not zero, " +
         std::to_string(stranger.pattern_bytes) + " of them that process's pattern.";
}

std::string stall_sentence(const CudaMallocFacts& facts, const std::string& call) {
  std::uint64_t waited = 0;
  std::uint64_t rounds = 0;
  for (const StallTrial& trial : facts.stalls) {
    if (trial.call != call) continue;
    waited += trial.waited;
    rounds += trial.rounds;
  }
  const char* const verb = waited == 0        ? " does not wait"
                           : waited == rounds ? " waits"
                                              : " sometimes waits";
  return call + verb + " for work on another stream: " + std::to_string(waited) + " of " +
         std::to_string(rounds) + " calls came back only after it (" + facts.job_kind + ").";
}

}  // namespace

std::string to_json_text(const CudaMallocFacts& facts) {
  Json reuse = Json::array();
  for (const ReuseTrial& trial : facts.reuse) reuse.push_back(to_json(trial));
  Json stalls = Json::array();
  for (const StallTrial& trial : facts.stalls) stalls.push_back(to_json(trial));
  const StrangerTrial& stranger = facts.stranger;
  const Json json = {{"stranger",
                      {{"filled_bytes", stranger.filled_bytes},
                       {"looked_at_bytes", stranger.looked_at_bytes},
                       {"pattern_bytes", stranger.pattern_bytes},
                       {"other_bytes", stranger.other_bytes}}},
                     {"reuse", reuse},
                     {"job_kind", facts.job_kind},
                     {"job_ms", facts.job_ms},
                     {"stalls", stalls},
                     {"sentences",
                      {zeroing_sentence(facts), stall_sentence(facts, "cudaMalloc"),
                       stall_sentence(facts, "cudaFree")}}};
  return json.dump();
}

std::string to_text(const CudaMallocFacts& facts) {
  std::string text = zeroing_sentence(facts) + "\n";
  for (const ReuseTrial& trial : facts.reuse) text += to_text(trial);
  text += stall_sentence(facts, "cudaMalloc") + "\n" + stall_sentence(facts, "cudaFree") + "\n";
  for (const StallTrial& trial : facts.stalls) text += to_text(trial, facts.job_ms);
  return text;
}

}  // namespace gpupool::bench
