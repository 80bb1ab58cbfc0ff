#include "tools/advise/setting.h"

#include "tools/terminal/units.h"

namespace gpupool::tools {

std::vector<Setting> with_each_policy(const Setting& setting) {
  Setting off;
  off.recycling = Recycling::off;
  off.cache_large_bytes = setting.cache_large_bytes;
  std::vector<Setting> all = {off};
  for (const AliasReuse alias_reuse : {AliasReuse::wait, AliasReuse::same_stream}) {
    Setting moving = off;
    moving.alias_reuse = alias_reuse;
    moving.recycling = Recycling::pressure;
    all.push_back(moving);
    moving.recycling = Recycling::eager;
    for (const double percent : kSlackPercents) {
      moving.slack_percent = percent;
      all.push_back(moving);
    }
  }
  return all;
}

std::vector<Setting> with_each_cache(const Setting& setting) {
  std::vector<Setting> all;
  for (const std::uint64_t bytes : kCacheLargeSizes) {
    all.push_back(setting);
    all.back().cache_large_bytes = bytes;
  }
  return all;
}

ReplayOptions replay_options(const ReplayOptions& base, const Setting& setting) {
  ReplayOptions options = base;
  options.runtime.recycling = setting.recycling;
  options.runtime.slack = setting.slack_percent / 100;
  options.runtime.alias_reuse = setting.alias_reuse;
  options.cache_large_bytes = setting.cache_large_bytes;
  return options;
}

std::string policy_text(const Setting& setting) {
  std::string text = to_string(setting.recycling);
  if (setting.recycling == Recycling::eager) text += " " + percent_text(setting.slack_percent);
  if (setting.alias_reuse != RuntimeOptions().alias_reuse) {
    text += std::string(", ") + to_string(setting.alias_reuse);
  }
  return text;
}

}  // namespace gpupool::tools
