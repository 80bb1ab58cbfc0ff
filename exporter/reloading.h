// The part of an exporter that exchanges the configuration: on demand, and on SIGHUP where that is
// asked for.
//
// Thread safety: all from any thread; reload_if_told() from one. Cost: a lock and a load where
// there is nothing to do.
#ifndef GPUPOOL_EXPORTER_RELOADING_H_
#define GPUPOOL_EXPORTER_RELOADING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exporter/hang_up_signal.h"
#include "exporter/pool_set.h"
#include "gpupool/exporter/config.h"
#include "gpupool/exporter/config_reloader.h"

namespace gpupool::internal {

class Reloading {
 public:
  using Log = std::function<void(const std::string& line)>;
  Reloading(PoolSet& pools, Log log);

  /// True where SIGHUP is watched from now on: reload_if_told() has to be called now and then.
  bool enable(const Config& in_force, bool on_sighup);
  ConfigReloader::Outcome reload(const Config& next);
  ConfigReloader::Outcome reload_file(const std::string& path);
  /// Does so if SIGHUP has come, and says what became of it.
  void reload_if_told();
  /// The process's disposition of SIGHUP is what it was.
  void stop_watching();

  /// What was there at the start counts as taken.
  ReloadState state() const;

 private:
  std::shared_ptr<ConfigReloader> reloader() const;

  PoolSet& pools_;
  const Log log_;
  const std::uint64_t start_unix_ns_;
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<ConfigReloader> reloader_;
  std::string path_;
  std::unique_ptr<HangUpSignal> signal_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_RELOADING_H_
