#include "exporter/config/torch_section.h"

#include <algorithm>
#include <string_view>

#include "exporter/config/choice.h"
#include "exporter/config/scalars.h"
#include "exporter/config/section.h"

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

OnConfigError find_on_config_error(std::string_view yaml) noexcept {
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
    return line == to_string(OnConfigError::defaults) ? OnConfigError::defaults
                                                      : OnConfigError::stop;
  }
  return OnConfigError::stop;
}

const char* to_string(OnConfigError value) noexcept {
  return value == OnConfigError::defaults ? "defaults" : "stop";
}

const char* to_string(TorchDevice value) noexcept {
  return value == TorchDevice::simulated ? "simulated" : "cuda";
}

}  // namespace gpupool
