#include "tests/scenarios/recorder.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

namespace gpupool::test {
namespace {

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.15g", value);
  return text;
}

// The end of the run of equal steps that begins at `first`; whole numbers only, whose sums are
// exact.
std::size_t run_end(const std::vector<double>& values, std::size_t first) {
  std::size_t end = first + 1;
  if (end >= values.size() || std::isnan(values[end])) return end;
  const double step = values[end] - values[first];
  const bool is_exact = step == 0 || (values[first] == std::floor(values[first]) &&
                                      step == std::floor(step) && values[first] < 1e15);
  if (!is_exact) return end;
  while (end < values.size() && values[end] == values[end - 1] + step) ++end;
  return end - first >= 3 ? end : first + 1;
}

std::string labels_of(const prometheus::ClientMetric& metric, const LabelText& target_labels) {
  std::string text = target_labels;
  for (const auto& label : metric.label) text += ", " + label.name + "=\"" + label.value + "\"";
  return text;
}

double value_of(const prometheus::ClientMetric& metric, prometheus::MetricType type) {
  return type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
}

}  // namespace

std::string values_text(const std::vector<double>& values) {
  std::string text;
  const auto put = [&](const std::string& word) { text += (text.empty() ? "" : " ") + word; };
  for (std::size_t i = 0; i < values.size();) {
    std::size_t end = i + 1;
    if (std::isnan(values[i])) {
      while (end < values.size() && std::isnan(values[end])) ++end;
      std::size_t missing = end - i;
      if (i > 0) {
        put("stale");
        --missing;
      }
      if (missing > 0) put("_x" + std::to_string(missing));
    } else {
      end = run_end(values, i);
      if (end == i + 1) {
        put(number(values[i]));
      } else {
        const double step = values[i + 1] - values[i];
        const std::string change =
            step == 0 ? "" : (step < 0 ? "-" : "+") + number(std::fabs(step));
        put(number(values[i]) + change + "x" + std::to_string(end - i - 1));
      }
    }
    i = end;
  }
  return text;
}

void Recorder::add(std::size_t scrape, const std::string& selector, double value) {
  std::vector<double>& values = series_[selector];
  values.resize(scrape, std::numeric_limits<double>::quiet_NaN());
  values.push_back(value);
}

void Recorder::add(std::size_t scrape, const std::vector<prometheus::MetricFamily>& families,
                   const LabelText& target_labels,
                   const std::function<double(const std::string&, double)>& changed) {
  for (const prometheus::MetricFamily& family : families) {
    if (family.type == prometheus::MetricType::Histogram) {
      if (families_.count(family.name + "_bucket") + families_.count(family.name + "_count") == 0) {
        continue;
      }
      for (const prometheus::ClientMetric& metric : family.metric) {
        const std::string labels = labels_of(metric, target_labels);
        for (const auto& bucket : metric.histogram.bucket) {
          const std::string bound =
              std::isinf(bucket.upper_bound) ? "+Inf" : number(bucket.upper_bound);
          add(scrape, family.name + "_bucket{" + labels + ", le=\"" + bound + "\"}",
              static_cast<double>(bucket.cumulative_count));
        }
        add(scrape, family.name + "_count{" + labels + "}",
            static_cast<double>(metric.histogram.sample_count));
      }
    } else if (families_.count(family.name) != 0) {
      for (const prometheus::ClientMetric& metric : family.metric) {
        add(scrape, family.name + "{" + labels_of(metric, target_labels) + "}",
            changed(family.name, value_of(metric, family.type)));
      }
    }
  }
}

void Recorder::visit(
    const std::function<void(const std::string&, const std::string&)>& visitor) const {
  std::size_t longest = 0;
  for (const auto& [selector, values] : series_) longest = std::max(longest, values.size());
  for (const auto& [selector, values] : series_) {
    std::vector<double> all = values;
    all.resize(longest, std::numeric_limits<double>::quiet_NaN());
    visitor(selector, values_text(all));
  }
}

}  // namespace gpupool::test
