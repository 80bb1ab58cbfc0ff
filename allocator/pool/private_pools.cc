#include "pool/private_pools.h"

#include <algorithm>
#include <utility>

namespace gpupool::internal {

// Routes: whoever asks has them without the lock, so that each change makes others.

void PrivatePools::set_routes(Routes routes) {
  const bool were_any = routes_->are_any();
  routes_ = std::make_shared<const Routes>(std::move(routes));
  if (were_any != routes_->are_any()) were_any ? caches_.unbar_all() : caches_.bar_all();
  update();
}

bool PrivatePools::begin(CapturePoolId pool,
                         std::shared_ptr<const std::function<bool(RawStream)>> takes) {
  Routes routes = *routes_;
  const auto is_meant = [&](const Routes::Filter& filter) { return filter.pool == pool; };
  const bool is_new = std::erase_if(routes.filters, is_meant) == 0;
  routes.filters.push_back({pool, std::move(takes)});
  set_routes(std::move(routes));
  return is_new;
}

bool PrivatePools::end(CapturePoolId pool) {
  Routes routes = *routes_;
  const auto is_meant = [&](const Routes::Filter& filter) { return filter.pool == pool; };
  if (std::erase_if(routes.filters, is_meant) == 0) return false;
  set_routes(std::move(routes));
  return true;
}

void PrivatePools::announce(const StreamState& stream, CapturePoolId pool) {
  Routes routes = *routes_;
  const auto is_meant = [&](const Routes::Announced& known) { return known.stream == &stream; };
  std::erase_if(routes.announced, is_meant);
  routes.announced.push_back({&stream, pool});
  set_routes(std::move(routes));
}

bool PrivatePools::withdraw(const StreamState& stream) {
  const auto is_meant = [&](const Routes::Announced& known) { return known.stream == &stream; };
  if (std::none_of(routes_->announced.begin(), routes_->announced.end(), is_meant)) return false;
  Routes routes = *routes_;
  std::erase_if(routes.announced, is_meant);
  set_routes(std::move(routes));
  return true;
}

// Pseudo-streams.

PrivatePools::PrivatePool* PrivatePools::find_pool(CapturePoolId id) const {
  const auto found = pools_.find(id);
  return found == pools_.end() ? nullptr : found->second.get();
}

StreamState* PrivatePools::find(const Placement& placement, std::uint64_t stream_id) const {
  const PrivatePool* const pool = find_pool(placement.pool);
  if (pool == nullptr) return nullptr;
  for (const Member& member : pool->members) {
    if (member.stream_id == stream_id && member.is_capturing == placement.is_capturing) {
      return member.state;
    }
  }
  return nullptr;
}

void PrivatePools::add(const Placement& placement, std::uint64_t stream_id, StreamState& pseudo) {
  PrivatePool* pool = find_pool(placement.pool);
  if (pool == nullptr) {
    pool = pools_.emplace(placement.pool, std::make_unique<PrivatePool>()).first->second.get();
  }
  pool->members.push_back({stream_id, placement.is_capturing, &pseudo});
  if (by_pseudo_.size() <= pseudo.index()) by_pseudo_.resize(pseudo.index() + 1);
  by_pseudo_[pseudo.index()] = pool;
  update();
}

bool PrivatePools::is_of(StreamIndex pseudo, const CapturePoolId& pool) const {
  return by_pseudo_[pseudo] != nullptr && by_pseudo_[pseudo] == find_pool(pool);
}

// The end.

void PrivatePools::release(CapturePoolId id) {
  const auto found = pools_.find(id);
  if (found == pools_.end()) return;
  released_.push_back(std::move(found->second));
  pools_.erase(found);
}

void PrivatePools::release_all() {
  for (auto& [id, pool] : pools_) released_.push_back(std::move(pool));
  pools_.clear();
  set_routes({});
}

std::vector<StreamState*> PrivatePools::take_released(std::uint64_t count) {
  std::vector<StreamState*> ended;
  const auto end = released_.begin() + static_cast<std::ptrdiff_t>(count);
  for (auto pool = released_.begin(); pool != end; ++pool) {
    for (const Member& member : (*pool)->members) {
      by_pseudo_[member.state->index()] = nullptr;
      ended.push_back(member.state);
    }
  }
  released_.erase(released_.begin(), end);
  update();
  return ended;
}

// The books.

void PrivatePools::note_taken(StreamIndex pseudo, Kind kind, std::uint64_t bytes) {
  PrivatePool& pool = *by_pseudo_[pseudo];
  switch (kind) {
    case Kind::in_chunk: pool.live_chunk_bytes += bytes; break;
    case Kind::run: pool.live_run_bytes += bytes; break;
    case Kind::fallback: pool.fallback_bytes += bytes; break;
  }
}

void PrivatePools::note_freed(StreamIndex pseudo, Kind kind, std::uint64_t bytes) {
  PrivatePool& pool = *by_pseudo_[pseudo];
  switch (kind) {
    case Kind::in_chunk: pool.live_chunk_bytes -= bytes; break;
    case Kind::run: pool.live_run_bytes -= bytes; break;
    case Kind::fallback: pool.freed_fallback_bytes += bytes; break;
  }
}

}  // namespace gpupool::internal
