#include "bench/peers/cuda_entries.h"

#include <cstring>

#include "bench/peers/cuda_facts.h"
#include "bench/peers/cuda_systems.h"
#include "bench/peers/measure.h"

namespace gpupool::bench {

void add_cuda_entries(Program& program) {
  program.sections.push_back(
      {"cudamalloc_facts", [](std::string& sentences) -> Result<std::string, Status> {
         const auto facts = measure_cuda_malloc_facts();
         if (!facts.ok()) return facts.error();
         sentences = to_text(facts.value());
         return to_json_text(facts.value());
       }});
  program.systems.push_back({"cudaMallocAsync", [](const Plan& plan) {
                               return measure_system<CudaMallocAsyncSystem>("cudaMallocAsync",
                                                                            plan);
                             }});
  program.systems.push_back({"cudaMalloc", [](const Plan& plan) {
                               return measure_system<CudaMallocSystem>("cudaMalloc", plan);
                             }});
}

std::optional<int> help_another_process(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], kFillArgument) == 0) return fill_and_end();
  return std::nullopt;
}

}  // namespace gpupool::bench
