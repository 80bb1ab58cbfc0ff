#include "exporter/config/ranks_section.h"

#include "exporter/config/scalars.h"
#include "exporter/config/section.h"

namespace gpupool {
namespace internal {

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
