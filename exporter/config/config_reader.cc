// From the tree of a YAML file to Config: which keys there are, and what each may hold.

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "exporter/config/choice.h"
#include "exporter/config/duration_text.h"
#include "exporter/config/error_list.h"
#include "exporter/config/exporter_section.h"
#include "exporter/config/list.h"
#include "exporter/config/misuse_log.h"
#include "exporter/config/scalars.h"
#include "exporter/config/section.h"
#include "exporter/config/torch_section.h"
#include "exporter/config/yaml_document.h"
#include "gpupool/exporter/config.h"

namespace gpupool {
namespace internal {
namespace {

constexpr std::uint64_t kMaxOrdinal = 1023;  // of a device; more than any machine has
// Bytes without a tag are shown under this name.
constexpr std::string_view kUntaggedName = "untagged";

Read<std::uint64_t> read_watched_size(const YamlNode& node) {
  auto size = read_size(node);
  if (size.ok() && size.value() == 0) return refusal("0", "no request", "a size above 0");
  return size;
}

Read<std::string> read_tag(const YamlNode& node) {
  auto name = read_name(node);
  if (name.ok() && name.value() == kUntaggedName) {
    return refusal(name.value(), "what memory without a tag is called", "any other name");
  }
  return name;
}

void read_trim(const YamlNode& node, TrimOptions& trim, ErrorList& errors) {
  Section section(node, "pool.trim", errors);
  using Value = const YamlNode&;
  section.read({
      {"idle_after", [&](Value v) { section.assign(v, read_duration(v), trim.idle_after_ns); }},
      {"rate", [&](Value v) { section.assign(v, read_trim_size(v), trim.idle_bytes_per_second); }},
      {"keep_device_free",
       [&](Value v) { section.assign(v, read_trim_size(v), trim.keep_device_free_bytes); }},
  });
  const YamlNode* const rate = section.find("rate");
  if (rate != nullptr && trim.idle_after_ns > 0 && trim.idle_bytes_per_second == 0) {
    section.refuse(*rate,
                   "is 0, so that nothing would go back after pool.trim.idle_after; allowed"
                   " is a size above 0, or idle_after: 0");
  }
}

/// A time in which somebody would still wait.
Read<std::uint64_t> read_wait(const YamlNode& node) {
  auto wait = read_duration(node);
  if (wait.ok() && wait.value() > kMaxOutOfMemoryWaitNs) {
    return refusal(format_duration(wait.value()), "a time to wait", "a time up to 1h");
  }
  return wait;
}

void read_out_of_memory(const YamlNode& node, OutOfMemoryOptions& options, ErrorList& errors) {
  Section section(node, "pool.out_of_memory", errors);
  using Value = const YamlNode&;
  section.read({
      {"wait", [&](Value v) { section.assign(v, read_wait(v), options.wait_ns); }},
  });
}

void read_debug(const YamlNode& node, DebugOptions& debug, ErrorList& errors) {
  Section section(node, "pool.debug", errors);
  using Value = const YamlNode&;
  section.read({
      {"scrub", [&](Value v) { section.assign(v, read_boolean(v), debug.scrub); }},
      {"poison", [&](Value v) { section.assign(v, read_boolean(v), debug.poison); }},
      {"canary", [&](Value v) { section.assign(v, read_boolean(v), debug.canary); }},
      {"nvtx", [&](Value v) { section.assign(v, read_boolean(v), debug.nvtx); }},
  });
  const YamlNode* const poison = section.find("poison");
  if (poison != nullptr && debug.poison && debug.scrub) {
    section.refuse(*poison, "is not to be had with pool.debug.scrub; allowed is one of the two");
  }
}

Read<int> read_peer(const YamlNode& node) {
  const auto ordinal = read_integer(node, 0, kMaxOrdinal);
  if (!ordinal.ok()) return ordinal.error();
  return static_cast<int>(ordinal.value());
}

/// What several keys of the section say together.
void check_pool(Section& section, const PoolOptions& pool) {
  const auto* capacity_bytes = std::get_if<std::uint64_t>(&pool.capacity);
  const YamlNode* const reserve = section.find("reserve");
  if (reserve != nullptr && capacity_bytes != nullptr && pool.reserve_bytes > *capacity_bytes) {
    section.refuse(*reserve,
                   "is more than pool.capacity; allowed is up to " + format_size(*capacity_bytes));
  }
  const YamlNode* const debug = section.find("debug");
  if (debug != nullptr && pool.debug.nvtx && pool.backing != Backing::cudamalloc) {
    section.refuse(*debug, "asks for nvtx, which takes pool.backing: cudamalloc");
  }
  const YamlNode* const peers = section.find("peers");
  if (peers == nullptr || pool.peers.empty()) return;
  if (pool.backing != Backing::vmm) {
    section.refuse(*peers,
                   "takes pool.backing: vmm; memory of cudaMalloc follows"
                   " cudaDeviceEnablePeerAccess");
  }
  if (pool.runtime.alias_reuse == AliasReuse::same_stream) {
    section.refuse(*peers, "is not to be had with pool.alias_reuse: same_stream");
  }
}

void read_pool(const YamlNode& node, PoolOptions& pool, ErrorList& errors) {
  Section section(node, "pool", errors);
  using Value = const YamlNode&;
  section.read({
      {"name", [&](Value v) { section.assign(v, read_name(v), pool.name); }},
      {"capacity", [&](Value v) { section.assign(v, read_capacity(v), pool.capacity); }},
      {"reserve", [&](Value v) { section.assign(v, read_size(v), pool.reserve_bytes); }},
      {"backing",
       [&](Value v) {
         section.assign(v, read_choice<Backing>(v, {{Backing::vmm}, {Backing::cudamalloc}}),
                        pool.backing);
       }},
      {"recycling",
       [&](Value v) {
         section.assign(v,
                        read_choice<Recycling>(
                            v, {{Recycling::off}, {Recycling::pressure}, {Recycling::eager}}),
                        pool.runtime.recycling);
       }},
      {"slack", [&](Value v) { section.assign(v, read_percentage(v), pool.runtime.slack); }},
      {"recycling_wait",
       [&](Value v) { section.assign(v, read_percentage(v), pool.runtime.recycling_wait); }},
      {"alias_reuse",
       [&](Value v) {
         section.assign(v,
                        read_choice<AliasReuse>(v, {{AliasReuse::wait}, {AliasReuse::same_stream}}),
                        pool.runtime.alias_reuse);
       }},
      {"trim", [&](Value v) { read_trim(v, pool.runtime.trim, errors); }},
      {"out_of_memory",
       [&](Value v) { read_out_of_memory(v, pool.runtime.out_of_memory, errors); }},
      {"policy",
       [&](Value v) {
         section.assign(v,
                        read_choice<CrossStreamPolicy>(v, {{CrossStreamPolicy::never},
                                                           {CrossStreamPolicy::when_done},
                                                           {CrossStreamPolicy::wait}}),
                        pool.runtime.policy);
       }},
      {"on_misuse",
       [&](Value v) {
         section.assign(v, read_choice<OnMisuse>(v, {{OnMisuse::report}, {OnMisuse::abort}}),
                        pool.on_misuse);
       }},
      {"cache_small", [&](Value v) { section.assign(v, read_size(v), pool.cache_small_bytes); }},
      {"cache_large", [&](Value v) { section.assign(v, read_size(v), pool.cache_large_bytes); }},
      {"watched_sizes",
       [&](Value v) {
         read_list(section, v, kMaxWatchedSizes, "up to 4 sizes", pool.watched_sizes,
                   read_watched_size);
       }},
      {"verify_streams", [&](Value v) { section.assign(v, read_boolean(v), pool.verify_streams); }},
      {"contiguous",
       [&](Value v) {
         section.assign(v,
                        read_choice<ContiguousBacking>(
                            v, {{ContiguousBacking::cudamalloc}, {ContiguousBacking::handle}}),
                        pool.contiguous);
       }},
      {"peers",
       [&](Value v) {
         read_list(section, v, kMaxPeers, "up to 16 devices", pool.peers, read_peer);
       }},
      {"debug", [&](Value v) { read_debug(v, pool.debug, errors); }},
  });
  check_pool(section, pool);
}

void read_alerts(const YamlNode& node, Thresholds& thresholds, ErrorList& errors) {
  Section section(node, "alerts", errors);
  using Value = const YamlNode&;
  section.read({
      {"fragmentation_ratio",
       [&](Value v) { section.assign(v, read_ratio(v), thresholds.fragmentation_ratio); }},
      {"critical_fragmentation_ratio",
       [&](Value v) { section.assign(v, read_ratio(v), thresholds.critical_fragmentation_ratio); }},
      {"fallback_ratio",
       [&](Value v) { section.assign(v, read_ratio(v), thresholds.fallback_ratio); }},
      {"required_block_bytes",
       [&](Value v) { section.assign(v, read_size(v), thresholds.required_block_bytes); }},
  });
}

void read_config(const YamlNode& root, Config& config, ErrorList& errors) {
  Section section(root, "", errors);
  using Value = const YamlNode&;
  std::uint64_t version = 1;
  section.read({
      {"version", [&](Value v) { section.assign(v, read_integer(v, 1, 1), version); }},
      {"pool", [&](Value v) { read_pool(v, config.pool, errors); }},
      {"exporter", [&](Value v) { read_exporter(v, config.exporter, errors); }},
      {"alerts", [&](Value v) { read_alerts(v, config.pool.runtime.thresholds, errors); }},
      {"torch", [&](Value v) { read_torch(v, config.torch, errors); }},
      {"tags",
       [&](Value v) {
         read_list(section, v, kMaxTags, "up to 32 names", config.pool.tags, read_tag);
       }},
  });
}

}  // namespace
}  // namespace internal

std::string ConfigError::text(std::string_view file) const {
  std::string result(file);
  if (line > 0) result += ":" + std::to_string(line);
  if (!key_path.empty()) result += ": " + key_path;
  return result + ": " + message;
}

Result<Config, std::vector<ConfigError>> parse_config(std::string_view yaml) {
  internal::ErrorList errors;
  Config config;
  const internal::YamlDocument document = internal::read_yaml(yaml, errors);
  if (document.is_complete) internal::read_config(document.root, config, errors);
  if (!errors.empty()) return errors.take();
  config.pool.misuse_handler = internal::MisuseLog(config.pool.tags);
  return config;
}

}  // namespace gpupool
