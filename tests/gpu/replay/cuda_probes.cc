#include "tests/gpu/dependent_chain.h"
#include "tests/gpu/replay/probes.h"

namespace gpupool::gpu_tests {

ChainCase probe_chain(AliasReuse alias_reuse, std::uint64_t links) {
  ChainCase chain;
  chain.alias_reuse = alias_reuse;
  const auto measured = measure_dependent_chain(alias_reuse, links);
  if (!measured.ok()) {
    chain.error = measured.error().message;
    return chain;
  }
  chain.links = measured.value().links;
  chain.pages_recycled = measured.value().pages_recycled;
  chain.served_after_wait = measured.value().served_after_wait;
  chain.wrong_words = measured.value().mismatches.words;
  return chain;
}

}  // namespace gpupool::gpu_tests
