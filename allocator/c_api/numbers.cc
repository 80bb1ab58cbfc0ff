// gpupool.h: every number of a snapshot by its name (gpupool/stats_names.h); what is counted by an
// enum has the enum's name after a dot.
#include <string>
#include <string_view>
#include <vector>

#include "c_api/handle.h"
#include "gpupool/stats_names.h"

namespace gpupool::internal {
namespace {

class Visit {
 public:
  Visit(gpupool_number_visitor visitor, void* context) : visitor_(visitor), context_(context) {}

  void count(std::string_view name, std::uint64_t value) {
    visitor_(std::string(name).c_str(), value, static_cast<double>(value), context_);
  }
  void ratio(std::string_view name, double value) {
    visitor_(std::string(name).c_str(), static_cast<std::uint64_t>(value), value, context_);
  }

 private:
  gpupool_number_visitor visitor_;
  void* context_;
};

void visit(const StatsV1& stats, const std::vector<std::string>& tags, Visit& to) {
  for (const StatsNumber& number : kStatsNumbers) to.count(number.name, stats.*number.field);
  for (const StatsRatio& ratio : kStatsRatios) to.ratio(ratio.name, stats.*ratio.field);
  for (const StatsCounts& by : stats_by_enum(stats)) {
    for (std::size_t i = 0; i < by.counts.size(); ++i) {
      to.count(std::string(by.name) + "." + by.label(i), by.counts[i]);
    }
  }
  for (std::size_t i = 0; i < tags.size() && i < kMaxTags; ++i) {
    to.count("tag_live_bytes." + tags[i], stats.tag_live_bytes[i]);
  }
}

}  // namespace
}  // namespace gpupool::internal

gpupool_status gpupool_visit_stats(const gpupool_pool* pool, gpupool_number_visitor visitor,
                                   void* context) {
  using gpupool::internal::Visit;
  if (pool == nullptr || visitor == nullptr) {
    return gpupool::internal::null_argument("pool or visitor is NULL");
  }
  return gpupool::internal::guarded([&] {
    Visit to(visitor, context);
    gpupool::internal::visit(pool->pool->stats(), pool->pool->tag_names(), to);
    return GPUPOOL_OK;
  });
}
