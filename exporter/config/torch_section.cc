#include "exporter/config/torch_section.h"

#include <algorithm>
#include <string_view>

#include "exporter/config/choice.h"
#include "exporter/config/scalars.h"
#include "exporter/config/section.h"
#include "exporter/config/yaml_document.h"

namespace gpupool {
namespace internal {

void read_torch(const YamlNode& node, TorchOptions& torch, ErrorList& errors) {
  Section section(node, "torch", errors);
  using Value = const YamlNode&;
  section.read({
      {"on_config_error",
       [&](Value v) {
         section.assign(
             v, read_choice<OnConfigError>(v, {{OnConfigError::stop}, {OnConfigError::defaults}}),
             torch.on_config_error);
       }},
      {"device",
       [&](Value v) {
         section.assign(
             v, read_choice<TorchDevice>(v, {{TorchDevice::cuda}, {TorchDevice::simulated}}),
             torch.device);
       }},
      {"default_stream",
       [&](Value v) {
         section.assign(
             v,
             read_choice<DefaultStream>(v, {{DefaultStream::legacy}, {DefaultStream::per_thread}}),
             torch.default_stream);
       }},
      {"maintain_every",
       [&](Value v) { section.assign(v, read_duration(v), torch.maintain_every_ns); }},
  });
}

}  // namespace internal

namespace {

const internal::YamlNode* find_key(const internal::YamlNode* node, std::string_view key) {
  if (node == nullptr || node->kind != internal::YamlNode::Kind::mapping) return nullptr;
  const auto found = std::ranges::find(node->items, key, &internal::YamlNode::key);
  return found == node->items.end() ? nullptr : &*found;
}

OnConfigError on_config_error_named(std::string_view word) {
  return word == to_string(OnConfigError::defaults) ? OnConfigError::defaults : OnConfigError::stop;
}

/// Of what is no YAML, or a part of a file only, line by line.
OnConfigError scan_for_on_config_error(std::string_view yaml) {
  constexpr std::string_view kKey = "on_config_error:";
  constexpr std::string_view kBlanks = " \t\r";
  while (!yaml.empty()) {
    std::string_view line = yaml.substr(0, yaml.find('\n'));
    yaml.remove_prefix(line.size() < yaml.size() ? line.size() + 1 : line.size());
    line = line.substr(0, line.find(" #"));
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    if (!line.starts_with(kKey)) continue;
    line.remove_prefix(kKey.size());
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    line = line.substr(0, line.find_last_not_of(kBlanks) + 1);
    return on_config_error_named(line);
  }
  return OnConfigError::stop;
}

}  // namespace

OnConfigError find_on_config_error(std::string_view yaml) {
  internal::ErrorList errors;  // told already, by whoever could not read the file
  const internal::YamlDocument document = internal::read_yaml(yaml, errors);
  const auto* const found = find_key(find_key(&document.root, "torch"), "on_config_error");
  if (found != nullptr) return on_config_error_named(found->text);
  return errors.empty() ? OnConfigError::stop : scan_for_on_config_error(yaml);
}

const char* to_string(OnConfigError value) noexcept {
  return value == OnConfigError::defaults ? "defaults" : "stop";
}

const char* to_string(TorchDevice value) noexcept {
  return value == TorchDevice::simulated ? "simulated" : "cuda";
}

}  // namespace gpupool
