#include "bench/baselines/pool_system.h"

#include <utility>

namespace gpupool::baselines {

Result<std::unique_ptr<AllocationSystem>, Status> PoolSystem::create(
    Backend& backend, const std::vector<RawStream>& streams) {
  std::unique_ptr<PoolSystem> system(new PoolSystem(backend));
  PoolOptions options;
  options.clock = &system->clock_;
  auto pool = Pool::create(backend, std::move(options));
  if (!pool.ok()) return pool.error();
  system->pool_ = std::move(pool).value();
  for (const RawStream raw : streams) {
    const Result<StreamRef> stream = system->pool_->adopt_stream(raw);
    if (!stream.ok()) {
      return Status{stream.error(),
                    std::string("the pool did not take a stream: ") + to_string(stream.error())};
    }
    system->streams_.push_back(stream.value());
  }
  return std::unique_ptr<AllocationSystem>(std::move(system));
}

PoolSystem::~PoolSystem() {
  for (const StreamRef stream : streams_) pool_->release_stream(stream);
}

Result<void*> PoolSystem::allocate(std::uint64_t bytes, StreamIndex stream) {
  return pool_->allocate(bytes, streams_[stream]);
}

bool PoolSystem::deallocate(void* pointer, StreamIndex stream) {
  return pool_->deallocate(pointer, streams_[stream]);
}

void PoolSystem::pass_time(std::uint64_t ns) {
  clock_.advance_ns(ns);
  pool_->maintain();
}

void PoolSystem::empty_caches() { pool_->drain_caches(); }

std::string PoolSystem::find_fault() const {
  pool_->check_invariants();
  return pool_->stats().held_bytes == backend_.held_bytes() ? "" : "held is not what is held";
}

}  // namespace gpupool::baselines
