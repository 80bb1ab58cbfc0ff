// One copy of something dear to make, for all who ask: made anew for who asks once it is older than
// half a second, so that however many look, a process makes two a second at most.
//
// Thread safety: any thread; who asks while it is made waits for it. Cost: that of `make`, and of
// packing it once for who accepts gzip; a copy for each answer.
#ifndef GPUPOOL_EXPORTER_HTTP_SNAPSHOT_CACHE_H_
#define GPUPOOL_EXPORTER_HTTP_SNAPSHOT_CACHE_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "exporter/http/endpoints.h"
#include "gpupool/clock.h"

namespace gpupool::internal {

class SnapshotCache {
 public:
  static constexpr std::uint64_t kLifetimeNs = 500'000'000;

  /// `make` is given the number of the copy, from 1; `name` tells copies of this process from those
  /// of others.
  SnapshotCache(std::function<std::string(std::uint64_t sequence)> make, std::string name,
                const Clock& clock = steady_clock());

  Document get(bool is_gzip_accepted);

 private:
  const std::function<std::string(std::uint64_t)> make_;
  const std::string name_;
  const Clock& clock_;
  std::mutex mutex_;
  Document document_;
  std::uint64_t sequence_ = 0;
  std::uint64_t made_ns_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_SNAPSHOT_CACHE_H_
