#include "exporter/metrics/page_families.h"

#include <iterator>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace gpupool::internal {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

/// Tells label sets apart: no name or value has a zero byte.
std::string key_of(const ClientMetric& metric) {
  std::string key;
  for (const ClientMetric::Label& label : metric.label) {
    key += label.name;
    key += '\0';
    key += label.value;
    key += '\0';
  }
  return key;
}

std::uint64_t series_of(const MetricFamily& family) {
  std::uint64_t series = 0;
  for (const ClientMetric& metric : family.metric) series += series_count(family, metric);
  return series;
}

void drop_duplicates(MetricFamily& family, DroppedSeries& dropped) {
  std::set<std::string> seen;
  std::vector<ClientMetric> kept;
  for (ClientMetric& metric : family.metric) {
    if (seen.insert(key_of(metric)).second) {
      kept.push_back(std::move(metric));
    } else {
      dropped.duplicate += series_count(family, metric);
    }
  }
  family.metric = std::move(kept);
}

}  // namespace

std::size_t series_count(const MetricFamily& family, const ClientMetric& metric) {
  constexpr std::size_t kBesideBuckets = 3;  // +Inf, sum, count
  if (family.type != prometheus::MetricType::Histogram) return 1;
  return metric.histogram.bucket.size() + kBesideBuckets;
}

std::vector<MetricFamily> page_families(std::vector<MetricFamily> families, std::size_t max_series,
                                        DroppedSeries& dropped) {
  std::vector<MetricFamily> page;
  page.reserve(families.size());
  std::unordered_map<std::string, std::size_t> places;
  std::set<std::size_t> joined;
  for (MetricFamily& family : families) {
    const auto [place, is_new] = places.try_emplace(family.name, page.size());
    if (is_new) {
      page.push_back(std::move(family));
      continue;
    }
    MetricFamily& first = page[place->second];
    if (first.type != family.type) {  // of one name there is one type: the first one's
      dropped.duplicate += series_of(family);
      continue;
    }
    first.metric.insert(first.metric.end(), std::make_move_iterator(family.metric.begin()),
                        std::make_move_iterator(family.metric.end()));
    joined.insert(place->second);
  }
  for (const std::size_t place : joined) drop_duplicates(page[place], dropped);
  std::size_t series = 0;
  std::erase_if(page, [&](const MetricFamily& family) {
    const std::uint64_t more = series_of(family);
    const bool is_over = series + more > max_series;
    if (is_over) {
      dropped.over_limit += more;
    } else {
      series += more;
    }
    return is_over;
  });
  return page;
}

}  // namespace gpupool::internal
