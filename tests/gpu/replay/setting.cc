#include "tests/gpu/replay/setting.h"

#include <algorithm>

namespace gpupool::gpu_tests {
namespace {

constexpr std::uint64_t kPageBytes = std::uint64_t{2} << 20;
constexpr std::uint64_t kTightBytes = std::uint64_t{32} << 20;
constexpr double kThroughputSlack = 0.05;

Setting setting(const std::string& name, Recycling recycling, AliasReuse alias_reuse) {
  Setting made;
  made.name = name;
  made.runtime.recycling = recycling;
  made.runtime.alias_reuse = alias_reuse;
  return made;
}

/// One of each kind for both ways in which a page comes to its new address.
void append_both(std::vector<Setting>& list, const std::string& prefix, const std::string& suffix,
                 Recycling recycling, void (*change)(Setting&)) {
  for (const AliasReuse reuse : {AliasReuse::wait, AliasReuse::same_stream}) {
    const char* const word = reuse == AliasReuse::wait ? "-wait" : "-same-stream";
    list.push_back(setting(prefix + word + suffix, recycling, reuse));
    change(list.back());
  }
}

std::vector<Setting> make_settings() {
  std::vector<Setting> list = {setting("off", Recycling::off, AliasReuse::wait)};
  append_both(list, "eager", "", Recycling::eager, [](Setting&) {});
  append_both(list, "eager-5", "", Recycling::eager,
              [](Setting& made) { made.runtime.slack = kThroughputSlack; });
  append_both(list, "eager", "-behind", Recycling::eager,
              [](Setting& made) { made.is_behind = true; });
  append_both(list, "eager", "-inline", Recycling::eager,
              [](Setting& made) { made.maintains_inline = true; });
  list.push_back(setting("off-paced", Recycling::off, AliasReuse::wait));
  list.back().is_paced = true;
  append_both(list, "eager", "-paced", Recycling::eager,
              [](Setting& made) { made.is_paced = true; });
  append_both(list, "pressure", "", Recycling::pressure,
              [](Setting& made) { made.is_tight = true; });
  list.push_back(setting("off-completions", Recycling::off, AliasReuse::wait));
  list.back().honours_completions = true;
  append_both(list, "eager", "-completions", Recycling::eager,
              [](Setting& made) { made.honours_completions = true; });
  return list;
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> list = make_settings();
  return list;
}

std::uint64_t tight_capacity(std::uint64_t peak_requested_bytes) {
  const std::uint64_t wanted =
      peak_requested_bytes + std::max(peak_requested_bytes / 100, kTightBytes);
  return (wanted + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace gpupool::gpu_tests
