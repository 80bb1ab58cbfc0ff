// The embedded HTTP server: /metrics for Prometheus, / for people, /api/v1/ for scripts and the
// page,
// /-/healthy and /-/ready for orchestrators. Read-only; binds to loopback unless told otherwise.
//
//   auto exporter = gpupool::Exporter::start(pool, {});
//   if (!exporter.ok()) log(exporter.error().message);   // the service goes on without metrics
//
// It also runs Pool::maintain on a thread of its own, unless told not to, and keeps a history
// there.
//
// It never harms its host: a failure to start is a value, never an exception or an abort; signal
// dispositions and masks are left as they were; a forked child neither answers nor blocks the port.
// Thread safety: start and stop from one thread. Cost: 34 threads with small stacks, asleep, and 2
// MB.
#ifndef GPUPOOL_EXPORTER_EXPORTER_H_
#define GPUPOOL_EXPORTER_EXPORTER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "gpupool/exporter/config.h"
#include "gpupool/pool.h"
#include "gpupool/status.h"

namespace gpupool {

class Exporter {
 public:
  /// Starts serving `pool`, which outlives the exporter. With `maintain_period` > 0 a thread calls
  /// Pool::maintain that often. Where the options say not enabled it only does that: port() is 0.
  static Result<std::unique_ptr<Exporter>, Status> start(
      Pool& pool, const ExporterOptions& options,
      std::chrono::milliseconds maintain_period = std::chrono::milliseconds(10));
  /// Stops as stop() does; in a forked child it does nothing.
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  std::uint16_t port() const noexcept;
  /// "http://127.0.0.1:10064/"
  std::string url() const;
  /// Ends serving and joins its threads; can take 2 s (CivetWeb's poll quantum).
  void stop();

 private:
  class Impl;
  explicit Exporter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpupool

#endif  // GPUPOOL_EXPORTER_EXPORTER_H_
