#include "exporter/http/snapshot_cache.h"

#include <utility>

#include "exporter/http/compression.h"

namespace gpupool::internal {

SnapshotCache::SnapshotCache(std::function<std::string(std::uint64_t)> make, std::string name,
                             const Clock& clock)
    : make_(std::move(make)), name_(std::move(name)), clock_(clock) {}

Document SnapshotCache::get(bool is_gzip_accepted) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t now_ns = clock_.now_ns();
  if (sequence_ == 0 || now_ns - made_ns_ >= kLifetimeNs) {
    document_ = {.body = make_(sequence_ + 1),
                 .packed_body = "",
                 .version = name_ + "-" + std::to_string(sequence_ + 1)};
    ++sequence_;
    made_ns_ = now_ns;
  }
  if (is_gzip_accepted && document_.packed_body.empty()) {
    if (auto packed = gzip(document_.body)) document_.packed_body = *std::move(packed);
  }
  return document_;
}

}  // namespace gpupool::internal
