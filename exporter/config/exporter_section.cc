#include "exporter/config/exporter_section.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "exporter/base/network.h"
#include "exporter/base/textfile_path.h"
#include "exporter/config/choice.h"
#include "exporter/config/list.h"
#include "exporter/config/ranks_section.h"
#include "exporter/config/scalars.h"
#include "exporter/config/section.h"

namespace gpupool::internal {
namespace {

constexpr int kMaxPort = std::numeric_limits<std::uint16_t>::max();
constexpr std::uint64_t kMaxPortCount = 1024;
constexpr std::size_t kMaxHostNames = 32;
constexpr std::size_t kMaxNetworks = 64;
constexpr std::size_t kMaxHostNameLength = 253;  // of the domain name system

Read<std::string> read_host_name(const YamlNode& node) {
  constexpr std::string_view kAllowed = "a host name such as node7.example, without a port";
  auto text = read_text(node);
  if (!text.ok()) return text;
  const std::string& name = text.value();
  const bool is_name = std::ranges::all_of(name, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '.' || c == '_';
  });
  if (name.empty() || name.size() > kMaxHostNameLength || !is_name) {
    return refusal(name, "no host name", kAllowed);
  }
  return text;
}

Read<std::string> read_network(const YamlNode& node) {
  auto text = read_text(node);
  if (!text.ok()) return text;
  const auto network = parse_network(text.value());
  if (!network.ok()) {
    return refusal(text.value(), network.error(), "a network such as 10.0.0.0/8 or fd00::/8");
  }
  return text;
}

Read<std::string> read_some_text(const YamlNode& node) {
  auto text = read_text(node);
  if (text.ok() && text.value().empty()) return refusal("", "empty", "a text");
  return text;
}

/// Empty: none.
Read<std::string> read_textfile(const YamlNode& node) {
  auto text = read_text(node);
  if (!text.ok() || text.value().empty()) return text;
  const char* const problem = textfile_path_problem(text.value());
  return problem == nullptr ? text : Refusal{"'" + text.value() + "' " + problem};
}

/// RFC 7617: the first colon ends the name.
Read<std::string> read_user(const YamlNode& node) {
  auto text = read_some_text(node);
  if (text.ok() && text.value().find(':') != std::string::npos) {
    return refusal(text.value(), "no user name", "a text without a colon");
  }
  return text;
}

void read_auth(const YamlNode& node, BasicAuth& auth, ErrorList& errors) {
  Section section(node, "exporter.auth", errors);
  using Value = const YamlNode&;
  section.read({
      {"user", [&](Value v) { section.assign(v, read_user(v), auth.user); }},
      {"password_file", [&](Value v) { section.assign(v, read_some_text(v), auth.password_file); }},
      {"password_env", [&](Value v) { section.assign(v, read_some_text(v), auth.password_env); }},
      {"password", [&](Value v) { section.assign(v, read_some_text(v), auth.password); }},
  });
  if (node.kind != YamlNode::Kind::mapping || node.items.empty()) return;  // {}: nobody logs in
  if (section.find("user") == nullptr) errors.add(node.line, "exporter.auth", "has no user");
  int passwords = 0;
  for (const char* key : {"password_file", "password_env", "password"}) {
    passwords += section.find(key) != nullptr ? 1 : 0;
  }
  if (passwords != 1) {
    errors.add(node.line, "exporter.auth",
               "has " + std::string(passwords == 0 ? "no password" : "more than one password") +
                   "; allowed is one of password_file, password_env, password");
  }
}

}  // namespace

void read_exporter(const YamlNode& node, ExporterOptions& options, ErrorList& errors) {
  Section section(node, "exporter", errors);
  using Value = const YamlNode&;
  const auto refuse_tls = [&](Value v) {
    section.refuse(v,
                   "is not offered inside the process; put a proxy or a sidecar in front"
                   " that ends TLS (nginx, Envoy, kube-rbac-proxy)");
  };
  section.read({
      {"enabled", [&](Value v) { section.assign(v, read_boolean(v), options.enabled); }},
      {"bind", [&](Value v) { section.assign(v, read_address(v), options.bind); }},
      {"port", [&](Value v) { section.assign(v, read_integer(v, 0, kMaxPort), options.port); }},
      {"port_count",
       [&](Value v) { section.assign(v, read_integer(v, 1, kMaxPortCount), options.port_count); }},
      {"on_port_taken",
       [&](Value v) {
         section.assign(v,
                        read_choice<OnPortTaken>(
                            v, {{OnPortTaken::next}, {OnPortTaken::any}, {OnPortTaken::fail}}),
                        options.on_port_taken);
       }},
      {"public_page", [&](Value v) { section.assign(v, read_boolean(v), options.public_page); }},
      {"public_details",
       [&](Value v) { section.assign(v, read_boolean(v), options.public_details); }},
      {"host_names",
       [&](Value v) {
         read_list(section, v, kMaxHostNames, "up to 32 names", options.host_names, read_host_name);
       }},
      {"allow_networks",
       [&](Value v) {
         read_list(section, v, kMaxNetworks, "up to 64 networks", options.allow_networks,
                   read_network);
       }},
      {"auth", [&](Value v) { read_auth(v, options.auth, errors); }},
      {"job", [&](Value v) { read_job(v, options.job, errors); }},
      {"discovery", [&](Value v) { read_discovery(v, options.discovery, errors); }},
      {"reload_on_sighup",
       [&](Value v) { section.assign(v, read_boolean(v), options.reload_on_sighup); }},
      {"textfile", [&](Value v) { section.assign(v, read_textfile(v), options.textfile); }},
      {"textfile_every",
       [&](Value v) { section.assign(v, read_duration(v), options.textfile_every_ns); }},
      {"tls", refuse_tls},
      {"tls_cert", refuse_tls},
      {"tls_key", refuse_tls},
      {"tls_config", refuse_tls},
  });
  // A port that was asked for is meant; only the default one is looked for upward, or what is said
  // to be.
  const YamlNode* const port_count = section.find("port_count");
  if (port_count == nullptr) {
    const bool is_range =
        section.find("port") == nullptr ||
        (section.find("on_port_taken") != nullptr && options.on_port_taken == OnPortTaken::next);
    if (!is_range) options.port_count = 1;
  } else if (options.port != 0 && options.port + options.port_count - 1 > kMaxPort) {
    section.refuse(*port_count, "reaches beyond port 65535; allowed is up to " +
                                    std::to_string(kMaxPort - options.port + 1));
  }
}

}  // namespace gpupool::internal
