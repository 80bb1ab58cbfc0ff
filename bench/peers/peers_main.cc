// gpupool_peers: gpupool beside what the CUDA runtime offers, on the same work; and what the
// machine itself charges. Without a GPU, gpupool alone on the simulated device.
#include "bench/peers/cuda_entries.h"
#include "bench/peers/gpupool_system.h"
#include "bench/peers/machine.h"
#include "bench/peers/measure.h"
#include "bench/peers/program.h"

int main(int argc, char** argv) {
  using namespace gpupool;
  using namespace gpupool::bench;
  if (const auto helped = help_another_process(argc, argv)) return *helped;
  Program program;
  program.name = "gpupool_peers";
  program.sections.push_back({"machine",
                              [](std::string& sentences) -> Result<std::string, Status> {
                                const MachineFacts facts = measure_machine();
                                sentences = to_text(facts);
                                return to_json_text(facts);
                              },
                              false});
  program.systems.push_back(
      {"gpupool", [](const Plan& plan) { return measure_system<GpupoolServed>("gpupool", plan); },
       false});
  program.systems.push_back({"gpupool, maintained in the loop",
                             [](const Plan& plan) {
                               return measure_system<GpupoolByRef>(
                                   "gpupool, maintained in the loop", plan);
                             },
                             false});
  program.systems.push_back({"gpupool, recycling off",
                             [](const Plan& plan) {
                               return measure_system<GpupoolStaying>("gpupool, recycling off",
                                                                     plan);
                             },
                             false});
  program.systems.push_back({"gpupool, raw stream",
                             [](const Plan& plan) {
                               return measure_system<GpupoolByHandle>("gpupool, raw stream", plan);
                             },
                             false});
  add_cuda_entries(program);
  return run_program(argc, argv, program);
}
