// Another configuration for pools that are in use: what can change is changed, all of it or, where
// anything cannot be had, nothing.
//
//   gpupool::ConfigReloader reloader(config);                    // what the pools were made with
//   auto done = reloader.reload_file("gpupool.yaml", {pool.get()});
//   if (!done.ok()) log(done.error().front().text("gpupool.yaml"));   // the old one is in force
//
// Can change: pool.capacity, recycling, slack, recycling_wait, alias_reuse, trim, out_of_memory and
// policy of `pool`, and `alerts`. A file in which anything else differs from what is in force is
// refused with an error for each such key. Where nothing differs nothing is done; where something
// does, all of RuntimeOptions are as the file says afterwards, also what the program has set since
// by Pool::reconfigure; the capacity only where pool.capacity differs.
// An Exporter has one: Exporter::reload.
//
// Thread safety: all from any thread; one reload at a time. No pool is destroyed meanwhile. Cost:
// that of reading the file and of Pool::reconfigure and set_capacity.
#ifndef GPUPOOL_EXPORTER_CONFIG_RELOADER_H_
#define GPUPOOL_EXPORTER_CONFIG_RELOADER_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "gpupool/exporter/config.h"
#include "gpupool/pool.h"
#include "gpupool/status.h"

namespace gpupool {

/// The keys of which the value is another one now.
struct ReloadReport {
  std::vector<std::string> changed;
};

/// As the metrics gpupool_config_last_reload_... show it. The configuration that the program was
/// started with counts as loaded.
struct ReloadState {
  bool is_successful = true;
  std::uint64_t success_unix_ns = 0;
};

class ConfigReloader {
 public:
  explicit ConfigReloader(Config in_force);

  using Outcome = Result<ReloadReport, std::vector<ConfigError>>;
  Outcome reload(const Config& next, const std::vector<Pool*>& pools);
  /// The same with what load_config_file() reads.
  Outcome reload_file(const std::string& path, const std::vector<Pool*>& pools);

  ReloadState state() const;

 private:
  Outcome note(Outcome outcome);

  mutable std::mutex mutex_;  // guards what follows, and that one reload goes on at a time
  Config in_force_;
  ReloadState state_;
};

}  // namespace gpupool

#endif  // GPUPOOL_EXPORTER_CONFIG_RELOADER_H_
