#include "tests/gpu/replay/block_work.h"
#include "tests/gpu/replay/probes.h"

namespace gpupool::gpu_tests {

Result<std::unique_ptr<BlockWork>, Status> make_cuda_work(
    const std::vector<RawStream>& /*streams*/) {
  return Status{Error::not_supported, "this build has no CUDA"};
}

Result<std::vector<AliasCase>, Status> probe_aliases(std::uint64_t /*rounds*/) {
  return Status{Error::not_supported, "this build has no CUDA"};
}

ChainCase probe_chain(AliasReuse alias_reuse, std::uint64_t /*links*/) {
  ChainCase chain;
  chain.alias_reuse = alias_reuse;
  chain.error = "this build has no CUDA";
  return chain;
}

}  // namespace gpupool::gpu_tests
