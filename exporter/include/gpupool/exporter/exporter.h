// The embedded HTTP server: /metrics for Prometheus, / for people, /api/v1 for scripts, /-/healthy
// and /-/ready for orchestrators. Read-only; binds to loopback unless told otherwise.
//
//   auto exporter = gpupool::Exporter::start(pool, {});
//   if (!exporter.ok()) log(exporter.error().message);   // the service goes on without metrics
//
// Several pools of a process share one exporter, with one port: add(). It also runs Pool::maintain
// for each on a thread of its own, unless told not to, and what watch() is given, and keeps a
// history of each there.
//
// It never harms its host: a failure to start is a value, never an exception or an abort; signal
// dispositions and masks are left as they were, unless exporter.reload_on_sighup asks for one; a
// forked child neither answers nor blocks the port.
// Thread safety: start, enable_reload, stop and destroy on one thread; the rest from any. Cost: 34
// threads with small stacks, asleep, and 2 MB for each pool.
#ifndef GPUPOOL_EXPORTER_EXPORTER_H_
#define GPUPOOL_EXPORTER_EXPORTER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gpupool/exporter/config.h"
#include "gpupool/exporter/config_reloader.h"
#include "gpupool/pool.h"
#include "gpupool/status.h"
#include "gpupool/threshold_watch.h"

namespace gpupool {

/// As many as a scrape with our sample_limit has room for; of pools with 32 tags and four watched
/// sizes each, seven.
inline constexpr std::size_t kMaxServedPools = 8;

class Exporter {
 public:
  /// Starts serving `pool`, which outlives the exporter, or is removed from it first. With
  /// `maintain_period` > 0 a thread calls Pool::maintain that often. Where the options say not
  /// enabled it only does that: port() is 0.
  static Result<std::unique_ptr<Exporter>, Status> start(
      Pool& pool, const ExporterOptions& options,
      std::chrono::milliseconds maintain_period = std::chrono::milliseconds(10));
  /// Stops as stop() does; in a forked child it does nothing.
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  /// Shows, and maintains, another pool, too; nothing where it does already. Refused, and its
  /// series counted in gpupool_series_dropped_total: one of the name and device of another, and
  /// more than kMaxServedPools.
  /// `events`: as ExporterOptions::events, which is that of the first pool.
  Result<void, Status> add(Pool& pool, const EventLog* events = nullptr);
  /// The pool may be destroyed afterwards: waits for who reads it at the moment, or maintains it.
  /// Not from a function that was given to watch(). Nothing where it is not shown.
  void remove(Pool& pool);
  /// Calls `handler` at the thresholds of `pool`, one that is shown: see ThresholdWatch. On the
  /// exporter's thread, until the pool is removed.
  Result<void, Status> watch(Pool& pool, const ThresholdWatchOptions& options,
                             ThresholdWatch::Handler handler);

  /// From now on the configuration can be exchanged. `in_force`: the one that the program was
  /// started with, as its file has it. A SIGHUP reads that file again where the options given to
  /// start() have reload_on_sighup. Once.
  void enable_reload(const Config& in_force);
  /// For all pools: see ConfigReloader. An error where enable_reload() was not called.
  ConfigReloader::Outcome reload(const Config& next);
  /// The same with what `path` has now.
  ConfigReloader::Outcome reload_file(const std::string& path);

  std::uint16_t port() const noexcept;
  /// "http://127.0.0.1:10064/"
  std::string url() const;
  /// Takes this process out of exporter.discovery, and lets /-/ready say that it is ending, while
  /// it is served on: the quick part of stop(), for a process that ends without one. Idempotent.
  void retire();
  /// Ends serving and joins its threads; can take 2 s (CivetWeb's poll quantum).
  void stop();

 private:
  class Impl;
  explicit Exporter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpupool

#endif  // GPUPOOL_EXPORTER_EXPORTER_H_
