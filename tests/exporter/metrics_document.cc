// Prints docs/METRICS.md from the metric table.
//
//   gpupool_metrics_document > docs/METRICS.md
//
// tests/dashboards fails where that file is not what this prints.
#include <cstdio>
#include <string>

#include "exporter/metrics/metric_table.h"

namespace {

constexpr const char* kHead =
    "# What is exported\n"
    "\n"
    "Made from the metric table (exporter/metrics/metric_table.cc) by `gpupool_metrics_document`; "
    "a\n"
    "test fails where this page is stale. Every family is there from the first scrape, zeros\n"
    "included, but for the last one, which only a textfile has; the number of series of a process\n"
    "does not change while it runs. Words are those of [DESIGN.md](DESIGN.md); a panel or a rule\n"
    "that shows a family is named in [dashboards/](../dashboards/README.md) and\n"
    "[runbooks/](runbooks/).\n"
    "\n"
    "| family | type | labels | meaning |\n"
    "|---|---|---|---|\n";

const char* kind_text(gpupool::internal::MetricKind kind) {
  switch (kind) {
    case gpupool::internal::MetricKind::gauge: return "gauge";
    case gpupool::internal::MetricKind::counter: return "counter";
    case gpupool::internal::MetricKind::histogram: return "histogram";
  }
  return "";
}

std::string row_text(const gpupool::internal::MetricRow& row) {
  std::string labels;
  for (const std::string_view label : row.labels.all()) {
    labels += (labels.empty() ? "" : ", ") + std::string(label);
  }
  return "| `" + std::string(row.name) + "` | " + kind_text(row.kind) + " | " + labels + " | " +
         std::string(row.help) + " |\n";
}

}  // namespace

int main() {
  std::string text = kHead;
  for (const auto& row : gpupool::internal::metric_table()) text += row_text(row);
  return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0;
}
