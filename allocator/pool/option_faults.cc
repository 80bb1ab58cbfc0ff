#include "pool/option_faults.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/invalid.h"

namespace gpupool::internal {

Result<void, Status> find_debug_fault(const PoolOptions& options) {
  if (options.debug.poison && options.debug.scrub) {
    return invalid("debug.poison: not together with debug.scrub, which zeroes what it fills");
  }
  if (options.debug.nvtx && options.backing != Backing::cudamalloc) {
    return invalid(
        "debug.nvtx: with backing 'cudamalloc' alone, as a tool can be told of whole "
        "cudaMallocs only");
  }
  return {};
}

Result<void, Status> find_peer_fault(const std::vector<int>& peers, Backing backing,
                                     AliasReuse alias_reuse) {
  if (peers.empty()) return {};
  if (peers.size() > kMaxPeers) return invalid("peers: at most 16");
  if (backing != Backing::vmm) {
    return invalid(
        "peers: with backing 'vmm' alone; memory of cudaMalloc follows "
        "cudaDeviceEnablePeerAccess");
  }
  if (alias_reuse == AliasReuse::same_stream) {
    return invalid(
        "alias_reuse: 'same_stream' is not to be had with peers, for whose work the "
        "order of one stream says nothing");
  }
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const auto begin = peers.begin();
    const auto at = begin + static_cast<std::ptrdiff_t>(i);
    if (std::find(begin, at, peers[i]) != at) {
      return invalid("peers: " + std::to_string(peers[i]) + " is there twice");
    }
  }
  return {};
}

Result<void, Status> find_device_fault(const PoolOptions& options, Backend& backend) {
  if (options.backing == Backing::vmm && !backend.info().supports_vmm) {
    return Status{Error::not_supported,
                  "the device has no virtual memory management; use backing 'cudamalloc'"};
  }
  if (options.contiguous == ContiguousBacking::handle &&
      !backend.info().supports_shareable_handles) {
    return Status{Error::not_supported,
                  "contiguous: the device has no handles that can be passed on; use 'cudamalloc'"};
  }
  if (options.debug.nvtx && backend.block_notes() == nullptr) {
    return Status{Error::not_supported, "debug.nvtx: not offered by this build"};
  }
  for (const int peer : options.peers) {
    const auto can = backend.can_share_with(peer);
    if (peer == backend.info().ordinal || !can.ok() || !can.value()) {
      return Status{Error::not_supported, "peers: device " + std::to_string(peer) +
                                              " cannot access device " +
                                              std::to_string(backend.info().ordinal) + "'s memory"};
    }
  }
  return {};
}

}  // namespace gpupool::internal
