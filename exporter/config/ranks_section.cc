#include "exporter/config/ranks_section.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "exporter/config/scalars.h"
#include "exporter/config/section.h"

namespace gpupool {
namespace internal {
namespace {

constexpr std::size_t kMaxPathLength = 1024;
constexpr std::size_t kMaxHostLength = 253;

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c < 0 || (c >= ' ' && c != '\x7f'); });
}

/// Without the names that are replaced.
std::string without_names(std::string text) {
  for (const std::string_view name : {"{job_id}", "{uid}"}) {
    for (std::size_t at = 0; (at = text.find(name)) != std::string::npos;)
      text.erase(at, name.size());
  }
  return text;
}

Read<std::string> read_directory(const YamlNode& node) {
  constexpr std::string_view kAllowed =
      "an absolute path, in which {job_id} and {uid} may stand, or \"\" for none";
  auto text = read_text(node);
  if (!text.ok() || text.value().empty()) return text;
  const std::string& path = text.value();
  const bool has_other_name = without_names(path).find_first_of("{}") != std::string::npos;
  if (!path.starts_with('/') || path.size() > kMaxPathLength || !is_printable(path) ||
      has_other_name) {
    return refusal(path, "no such path", kAllowed);
  }
  return text;
}

Read<std::string> read_host(const YamlNode& node) {
  auto text = read_text(node);
  if (!text.ok() || text.value().empty()) return text;
  const auto is_allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == ':';
  };
  if (text.value().size() > kMaxHostLength || !std::ranges::all_of(text.value(), is_allowed)) {
    return refusal(text.value(), "no host", "a host's name or address, or \"\" for this host's");
  }
  return text;
}

}  // namespace

void read_discovery(const YamlNode& node, DiscoveryOptions& discovery, ErrorList& errors) {
  Section section(node, "exporter.discovery", errors);
  using Value = const YamlNode&;
  section.read({
      {"directory", [&](Value v) { section.assign(v, read_directory(v), discovery.directory); }},
      {"address", [&](Value v) { section.assign(v, read_host(v), discovery.address); }},
  });
}

void read_job(const YamlNode& node, JobOptions& job, ErrorList& errors) {
  Section section(node, "exporter.job", errors);
  using Value = const YamlNode&;
  section.read({
      {"id", [&](Value v) { section.assign(v, read_name(v), job.id); }},
      {"rank", [&](Value v) { section.assign(v, read_integer(v, 0, kMaxRank), job.rank); }},
      {"local_rank",
       [&](Value v) { section.assign(v, read_integer(v, 0, kMaxLocalRank), job.local_rank); }},
      {"world_size",
       [&](Value v) { section.assign(v, read_integer(v, 1, kMaxRank), job.world_size); }},
  });
}

}  // namespace internal

const char* to_string(OnPortTaken value) noexcept {
  switch (value) {
    case OnPortTaken::next: return "next";
    case OnPortTaken::any: return "any";
    case OnPortTaken::fail: return "fail";
  }
  return "unknown";
}

}  // namespace gpupool
