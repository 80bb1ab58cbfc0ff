#include "exporter/config/describe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "exporter/config/duration_text.h"
#include "gpupool/exporter/config.h"

namespace gpupool {
namespace {

constexpr double kPercent = 100;

/// As a person writes it, whatever the locale: 0.5, 90, 33.3.
std::string number_text(double value) {
  std::array<char, 64> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                          std::chars_format::general, 10);
  return error == std::errc() ? std::string(buffer.data(), end) : "?";
}

std::string ratio_text(double value) { return number_text(value) + " (ratio, 0 to 1)"; }

std::string bytes_text(std::uint64_t bytes) {
  const std::string plain = std::to_string(bytes) + " bytes";
  const std::string size = format_size(bytes);
  return size == std::to_string(bytes) ? plain : size + " (" + plain + ")";
}

std::string capacity_text(const CapacityLimit& capacity) {
  if (const auto* bytes = std::get_if<std::uint64_t>(&capacity)) return bytes_text(*bytes);
  return number_text(std::get<double>(capacity) * kPercent) +
         " % of the memory that the device has free at the start";
}

std::string join(const std::vector<std::string>& parts) {
  std::string result;
  for (const std::string& part : parts) result += (result.empty() ? "" : ", ") + part;
  return result.empty() ? "none" : result;
}

std::string port_text(const ExporterOptions& options) {
  if (options.port == 0) return "any free port";
  return std::to_string(options.port) + ", and the local rank added to it";
}

std::string on_port_taken_text(const ExporterOptions& options) {
  const bool has_no_next =
      options.on_port_taken == OnPortTaken::next && options.port_count == 1 && options.port != 0;
  return has_no_next ? "next (of one port: fail)" : to_string(options.on_port_taken);
}

std::string port_count_text(const ExporterOptions& options) {
  const std::string text = std::to_string(options.port_count) + " ports";
  return options.on_port_taken == OnPortTaken::next
             ? text
             : text + " (no effect with on_port_taken " + to_string(options.on_port_taken) + ")";
}

std::string or_environment(const std::string& text) {
  return text.empty() ? "as the environment says" : text;
}

std::string or_environment(const std::optional<std::uint32_t>& number) {
  return or_environment(number ? std::to_string(*number) : std::string());
}

/// Never the password.
std::string auth_text(const BasicAuth& auth) {
  if (auth.user.empty()) return "none";
  std::string text = "user " + auth.user + ", password ";
  if (!auth.password_file.empty()) return text + "in the file " + auth.password_file;
  if (!auth.password_env.empty()) return text + "in the environment, " + auth.password_env;
  return text + "given";
}

/// What 0 turns off.
std::string or_never(std::uint64_t value, std::string text) {
  return value == 0 ? "0 (never)" : std::move(text);
}

/// Set or not, it changes nothing: a person who reads what is in force would think otherwise.
std::string or_no_effect(const std::string& reason, std::string text) {
  return reason.empty() ? std::move(text) : std::move(text) + " (no effect " + reason + ")";
}

/// Of slack and recycling_wait.
std::string slack_void(const RuntimeOptions& runtime) {
  if (runtime.recycling == Recycling::eager) return {};
  return std::string("with recycling ") + to_string(runtime.recycling);
}

std::string alias_reuse_void(const PoolOptions& pool) {
  if (pool.runtime.recycling == Recycling::off) return "with recycling off";
  return pool.backing == Backing::vmm ? "" : "with backing cudamalloc";
}

const char* yes_no(bool value) { return value ? "true" : "false"; }

}  // namespace

namespace internal {
namespace {

void describe_pool(const PoolOptions& pool, std::vector<Setting>& settings) {
  const RuntimeOptions& runtime = pool.runtime;
  const TrimOptions& trim = runtime.trim;
  std::vector<std::string> watched;
  for (const std::uint64_t size : pool.watched_sizes) watched.push_back(format_size(size));
  std::vector<std::string> peers;
  for (const int peer : pool.peers) peers.push_back(std::to_string(peer));
  settings.insert(
      settings.end(),
      {
          {"pool.name", pool.name},
          {"pool.capacity", capacity_text(pool.capacity)},
          {"pool.reserve", bytes_text(pool.reserve_bytes)},
          {"pool.backing", to_string(pool.backing)},
          {"pool.recycling", to_string(runtime.recycling)},
          {"pool.slack",
           or_no_effect(slack_void(runtime), number_text(runtime.slack * kPercent) + " %")},
          {"pool.recycling_wait",
           or_no_effect(slack_void(runtime),
                        number_text(runtime.recycling_wait * kPercent) + " %")},
          {"pool.alias_reuse",
           or_no_effect(alias_reuse_void(pool), to_string(runtime.alias_reuse))},
          {"pool.trim.idle_after",
           or_never(trim.idle_after_ns, internal::format_duration(trim.idle_after_ns))},
          {"pool.trim.rate", or_no_effect(trim.idle_after_ns == 0 ? "without idle_after" : "",
                                          bytes_text(trim.idle_bytes_per_second) + " a second")},
          {"pool.trim.keep_device_free",
           or_never(trim.keep_device_free_bytes, bytes_text(trim.keep_device_free_bytes))},
          {"pool.out_of_memory.wait",
           or_never(runtime.out_of_memory.wait_ns,
                    internal::format_duration(runtime.out_of_memory.wait_ns))},
          {"pool.policy", to_string(runtime.policy)},
          {"pool.on_misuse", to_string(pool.on_misuse)},
          {"pool.cache_small", bytes_text(pool.cache_small_bytes)},
          {"pool.cache_large", bytes_text(pool.cache_large_bytes)},
          {"pool.watched_sizes", join(watched)},
          {"pool.verify_streams", yes_no(pool.verify_streams)},
          {"pool.contiguous", to_string(pool.contiguous)},
          {"pool.peers", join(peers)},
          {"pool.debug.scrub", yes_no(pool.debug.scrub)},
          {"pool.debug.poison", yes_no(pool.debug.poison)},
          {"pool.debug.canary", yes_no(pool.debug.canary)},
          {"pool.debug.nvtx", yes_no(pool.debug.nvtx)},
      });
}

void describe_exporter(const ExporterOptions& exporter, std::vector<Setting>& settings) {
  settings.insert(
      settings.end(),
      {
          {"exporter.enabled", yes_no(exporter.enabled)},
          {"exporter.bind", exporter.bind},
          {"exporter.port", port_text(exporter)},
          {"exporter.port_count", port_count_text(exporter)},
          {"exporter.on_port_taken", on_port_taken_text(exporter)},
          {"exporter.public_page", yes_no(exporter.public_page)},
          {"exporter.public_details", yes_no(exporter.public_details)},
          {"exporter.host_names", join(exporter.host_names)},
          {"exporter.allow_networks",
           exporter.allow_networks.empty() ? "all" : join(exporter.allow_networks)},
          {"exporter.auth", auth_text(exporter.auth)},
          {"exporter.job.id", or_environment(exporter.job.id)},
          {"exporter.job.rank", or_environment(exporter.job.rank)},
          {"exporter.job.local_rank", or_environment(exporter.job.local_rank)},
          {"exporter.job.world_size", or_environment(exporter.job.world_size)},
          {"exporter.discovery.directory",
           exporter.discovery.directory.empty() ? "none" : exporter.discovery.directory},
          {"exporter.discovery.address", exporter.discovery.address.empty()
                                             ? "as bound, or this host's name"
                                             : exporter.discovery.address},
          {"exporter.reload_on_sighup", yes_no(exporter.reload_on_sighup)},
          {"exporter.textfile", exporter.textfile.empty() ? "none" : exporter.textfile},
          {"exporter.textfile_every",
           exporter.textfile_every_ns == 0
               ? "0 (when the exporter stops)"
               : or_no_effect(exporter.textfile.empty() ? "without textfile" : "",
                              internal::format_duration(exporter.textfile_every_ns))},
      });
}

}  // namespace

std::vector<Setting> settings(const Config& config) {
  const Thresholds& thresholds = config.pool.runtime.thresholds;
  std::vector<Setting> result = {{"version", "1"}};
  describe_pool(config.pool, result);
  describe_exporter(config.exporter, result);
  result.insert(
      result.end(),
      {
          {"alerts.fragmentation_ratio", ratio_text(thresholds.fragmentation_ratio)},
          {"alerts.critical_fragmentation_ratio",
           ratio_text(thresholds.critical_fragmentation_ratio)},
          {"alerts.fallback_ratio", ratio_text(thresholds.fallback_ratio)},
          {"alerts.required_block_bytes", thresholds.required_block_bytes == 0
                                              ? "not declared"
                                              : bytes_text(thresholds.required_block_bytes)},
          {"torch.on_config_error", to_string(config.torch.on_config_error)},
          {"torch.device", to_string(config.torch.device)},
          {"torch.default_stream", to_string(config.torch.default_stream)},
          {"torch.maintain_every",
           or_never(config.torch.maintain_every_ns,
                    internal::format_duration(config.torch.maintain_every_ns))},
          {"tags", join(config.pool.tags)},
      });
  return result;
}

}  // namespace internal

std::string describe(const Config& config) {
  const std::vector<internal::Setting> lines = internal::settings(config);
  std::size_t width = 0;
  for (const internal::Setting& line : lines) width = std::max(width, line.key.size());
  std::string result;
  for (const internal::Setting& line : lines) {
    result += line.key + ":" + std::string(width - line.key.size() + 1, ' ') + line.value + "\n";
  }
  return result;
}

}  // namespace gpupool
