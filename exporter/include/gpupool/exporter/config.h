// One YAML file to options: what the pool, the exporter and the alerts are told to do.
//
// Strict: unknown and duplicate keys, wrong types and units, octal-looking and negative numbers,
// aliases and depth over 16 are errors, each with line, key path and what is allowed. All errors
// of a file are reported, not only the first. Loading has no side effect.
//
// Sizes: `8GiB`, `512MiB`, `64KiB`, `2TiB`, `20GB` (10^9), or plain bytes (size_text.h).
// Times: `60s`, `500ms`, `5min`, `2h`, or 0.
// Thread safety: plain functions. Cost: milliseconds.
#ifndef GPUPOOL_EXPORTER_CONFIG_H_
#define GPUPOOL_EXPORTER_CONFIG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpupool/c_handle.h"
#include "gpupool/options.h"
#include "gpupool/size_text.h"
#include "gpupool/status.h"

namespace gpupool {

class EventLog;

/// First port tried by default; ranks of one host take the ones after it (to 10079).
inline constexpr std::uint16_t kDefaultPort = 10064;

/// Basic authentication (RFC 7617). The password is one of the three; where none is given, or it
/// cannot be read, the exporter does not start. It goes over the network as it is: a proxy or a
/// sidecar that ends TLS belongs in front.
struct BasicAuth {
  std::string user;           // empty: nobody has to say who he is
  std::string password_file;  // its content, without a line break at the end
  std::string password_env;   // name of an environment variable
  std::string password;
};

/// What is done where the port that is tried first is taken.
enum class OnPortTaken : std::uint8_t {
  next,  // the other ports of the range are tried, upward and then from its start (default)
  any,   // any free port
  fail   // nothing is served
};
const char* to_string(OnPortTaken value) noexcept;

/// Larger numbers of ranks and of a job's processes are refused.
inline constexpr std::uint32_t kMaxRank = 2'147'483'647;
inline constexpr std::uint32_t kMaxLocalRank = 1023;

/// The place of this process in a distributed job. What is not given here is what torchrun or SLURM
/// have put into the environment.
struct JobOptions {
  std::string id;  // [A-Za-z0-9_.-], up to 64 characters
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> local_rank;  // among the processes of this host
  std::optional<std::uint32_t> world_size;
};

/// How this process makes itself known to a Prometheus that finds its targets in files.
struct DiscoveryOptions {
  /// Where a file for this process is put while it serves: an absolute path, in which {job_id} and
  /// {uid} stand for those of the process. "": nowhere.
  std::string directory;
  /// The host or address that Prometheus is to use. "": `bind`, or this host's name where that
  /// is 0.0.0.0 or ::.
  std::string address;
};

struct ExporterOptions {
  bool enabled = true;
  /// An IPv4 or IPv6 address, not a name.
  std::string bind = "127.0.0.1";
  /// The port of local rank 0, and of a process without one; local rank n tries `port` + n first.
  /// 0: any free one.
  std::uint16_t port = kDefaultPort;
  /// The range for OnPortTaken::next: so many ports from `port` upward. 1 where a port was asked
  /// for: each local rank then has one port alone.
  std::uint16_t port_count = 16;
  OnPortTaken on_port_taken = OnPortTaken::next;
  /// Serves the page and the API beyond loopback, too; /metrics is served wherever it is bound.
  bool public_page = false;
  /// Shows addresses of blocks and names of tags beyond loopback, too; without it there are none on
  /// any page there.
  bool public_details = false;
  /// Names that a request may be addressed to (Host), beside IP addresses and, on loopback,
  /// localhost. Empty: any name beyond loopback.
  std::vector<std::string> host_names;
  /// Networks that are answered, as "10.0.0.0/8" or "fd00::/8"; empty: all. This machine always is.
  std::vector<std::string> allow_networks;
  /// For every path but the health checks.
  BasicAuth auth;
  /// A file that is written when the exporter stops, for node_exporter's textfile collector; also
  /// where `enabled` is false. An absolute path to a name that ends in .prom. Empty: none. {rank},
  /// {local_rank} and {pid} are those of the process.
  std::string textfile;
  /// How often it is written before that; 0: not.
  std::uint64_t textfile_every_ns = 0;
  /// What /api/v1/events shows, which is to be the pool's observer as well (event_log.h); nullptr:
  /// nothing. Outlives the exporter.
  const EventLog* events = nullptr;
  JobOptions job;
  DiscoveryOptions discovery;
  /// SIGHUP makes the exporter read the configuration file again (Exporter::enable_reload). Unless
  /// this is asked for, what the process does on a SIGHUP is left as it is.
  bool reload_on_sighup = false;
  /// Told in a line what a person should know: what of the environment was left out, what could not
  /// be done. Called under no lock, from threads of the exporter, too; must not throw. Empty: a
  /// line on standard error.
  std::function<void(const std::string& line)> log;
};

/// What becomes of a PyTorch job whose configuration is wrong.
enum class OnConfigError : std::uint8_t {
  stop,     // it does not begin (default): a typing mistake never becomes a default
  defaults  // it runs with the defaults, after a line that says so
};
const char* to_string(OnConfigError value) noexcept;

enum class TorchDevice : std::uint8_t { cuda, simulated };
const char* to_string(TorchDevice value) noexcept;

/// Read by the PyTorch plug-in alone (integrations/torch).
struct TorchOptions {
  OnConfigError on_config_error = OnConfigError::stop;
  /// simulated: for tests of the plug-in itself, where there is no card.
  TorchDevice device = TorchDevice::cuda;
  /// What the stream handle 0 means. PyTorch's own builds mean the legacy default stream.
  DefaultStream default_stream = DefaultStream::legacy;
  /// How often the plug-in's thread calls Pool::maintain; 0: it has none.
  std::uint64_t maintain_every_ns = 10'000'000;
};

struct Config {
  PoolOptions pool;
  ExporterOptions exporter;
  TorchOptions torch;
  /// The file it was loaded from, "" where it was none.
  std::string path;
};

struct ConfigError {
  int line = 0;          // from 1; 0 where the file as a whole is meant
  std::string key_path;  // "pool.capacity"
  std::string message;   // what is wrong and what is allowed

  /// "FILE:LINE: pool.capacity: ..." as tools print it.
  std::string text(std::string_view file) const;
};

/// Reads `path`; errors name what could not be read or understood. The pool's misuse handler is one
/// that writes a line on standard error for the first of each kind; put another in its place to
/// have them elsewhere.
Result<Config, std::vector<ConfigError>> load_config_file(const std::string& path);
Result<Config, std::vector<ConfigError>> parse_config(std::string_view yaml);

/// torch.on_config_error of a file that is wrong elsewhere. Where it is no YAML, that is the first
/// line that sets it; `stop` where nothing does.
OnConfigError find_on_config_error(std::string_view yaml);
/// The same for what load_config_file() could not load.
OnConfigError find_on_config_error_in_file(const std::string& path);

/// Every setting in force, one a line with its unit: what `gpupool check-config` prints.
std::string describe(const Config& config);

}  // namespace gpupool

#endif  // GPUPOOL_EXPORTER_CONFIG_H_
