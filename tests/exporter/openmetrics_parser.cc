#include "tests/exporter/openmetrics_parser.h"

#include <cmath>
#include <limits>
#include <optional>
#include <regex>
#include <set>
#include <utility>

#include "exporter/base/utf8.h"
#include "tests/exporter/metrics_page.h"

namespace gpupool::testing_support {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

const std::set<std::string> kTypes = {"unknown", "gauge",     "counter",        "stateset",
                                      "info",    "histogram", "gaugehistogram", "summary"};

std::set<std::string> suffixes_of(const std::string& type) {
  if (type == "counter") return {"_total", "_created"};
  if (type == "histogram") return {"_bucket", "_count", "_sum", "_created"};
  if (type == "info") return {"_info"};
  return {""};
}

std::optional<double> read_number(const std::string& text) {
  static const std::regex form(R"([+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|NaN|[+-]?Inf)");
  if (!std::regex_match(text, form)) return std::nullopt;
  return read_sample(text);
}

/// What Go prints with the format g and the shortest precision, and ".0" behind whole numbers.
bool is_canonical(const std::string& text) {
  static const std::regex plain(R"(-?(0|[1-9]\d{0,5})\.(0|\d*[1-9]))");
  static const std::regex with_exponent(R"(-?[1-9](\.\d*[1-9])?e[+-]\d{2,3})");
  return text == "+Inf" || std::regex_match(text, plain) || std::regex_match(text, with_exponent);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  OpenMetricsPage parse() {
    if (internal::valid_utf8_prefix(text_) != text_.size()) complain("not UTF-8");
    if (!text_.ends_with("# EOF\n")) complain("does not end with # EOF");
    std::size_t begin = 0;
    while (begin < text_.size()) {
      const std::size_t end = text_.find('\n', begin);
      if (end == std::string_view::npos) {
        complain("the last line has no end");
        break;
      }
      ++line_;
      read_line(std::string(text_.substr(begin, end - begin)));
      begin = end + 1;
    }
    finish_family();
    return std::move(page_);
  }

 private:
  struct Histogram {
    double last_bound = -std::numeric_limits<double>::infinity();
    double last_count = 0;
    std::optional<double> count;
    bool has_sum = false;
  };

  void complain(const std::string& what) {
    page_.complaints.push_back("line " + std::to_string(line_) + ": " + what);
  }

  void read_line(const std::string& line) {
    if (is_over_) return complain("something behind # EOF");
    if (line == "# EOF") {
      is_over_ = true;
    } else if (line.starts_with("#")) {
      read_metadata(line);
    } else {
      read_sample(line);
    }
  }

  void read_metadata(const std::string& line) {
    static const std::regex form(R"(# (TYPE|UNIT|HELP) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*))");
    std::smatch match;
    if (!std::regex_match(line, match, form)) return complain("no metadata: " + line);
    const std::string keyword = match[1];
    const std::string name = match[2];
    const std::string value = match[3];
    if (name != family_) start_family(name);
    if (has_samples_) complain("metadata behind samples of " + name);
    if (!seen_.insert(keyword).second) complain(keyword + " twice for " + name);
    OpenMetricsPage::Family& family = page_.families[name];
    if (keyword == "TYPE") {
      if (!kTypes.contains(value)) complain("no such type: " + value);
      family.type = value;
    } else if (keyword == "UNIT") {
      if (!name.ends_with("_" + value)) complain(name + " does not end with its unit " + value);
      family.unit = value;
    } else {
      static const std::regex escaped(R"(([^\\"]|\\[\\n"])*)");
      if (!std::regex_match(value, escaped)) complain("help is not escaped: " + value);
      family.help = value;
    }
  }

  void start_family(const std::string& name) {
    finish_family();
    family_ = name;
    seen_.clear();
    has_samples_ = false;
    if (page_.families.contains(name)) complain(name + " stands at two places");
    page_.families[name];
  }

  void finish_family() {
    for (const auto& [labels, histogram] : histograms_) {
      if (!std::isinf(histogram.last_bound)) complain(family_ + labels + ": no bucket +Inf");
      if (!histogram.has_sum) complain(family_ + labels + ": no sum");
      if (!histogram.count) complain(family_ + labels + ": no count");
      if (histogram.count && *histogram.count != histogram.last_count) {
        complain(family_ + labels + ": count is not that of +Inf");
      }
    }
    histograms_.clear();
  }

  void read_sample(const std::string& line) {
    static const std::regex form(R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(.*)\})? (\S+)( [0-9.]+)?)re");
    std::smatch match;
    if (!std::regex_match(line, match, form)) return complain("no sample: " + line);
    const std::string name = match[1];
    const std::string type = page_.families[family_].type;
    if (!name.starts_with(family_) || !suffixes_of(type).contains(name.substr(family_.size()))) {
      return complain(name + " is no sample of the " + type + " " + family_);
    }
    has_samples_ = true;
    const auto value = read_number(match[4]);
    if (!value) return complain("no number: " + line);
    Labels labels;
    if (match[2].matched && !read_labels(match[3], labels)) return complain("labels: " + line);
    const std::string key = name + std::string(match[2]);
    if (!page_.samples.emplace(key, *value).second) complain(key + " twice");
    check_value(name.substr(family_.size()), type, labels, *value);
  }

  bool read_labels(std::string text, Labels& labels) {
    static const std::regex form(R"re(([a-zA-Z_][a-zA-Z0-9_]*)="(([^\\"\n]|\\[\\n"])*)"(,|$))re");
    std::set<std::string> names;
    std::smatch match;
    while (!text.empty()) {
      if (!std::regex_search(text, match, form, std::regex_constants::match_continuous))
        return false;
      if (!names.insert(match[1]).second) complain("label twice: " + std::string(match[1]));
      labels.emplace_back(match[1], match[2]);
      const bool is_last = match[4].length() == 0;
      text = match.suffix();
      if (is_last != text.empty()) return false;
    }
    return true;
  }

  void check_value(const std::string& suffix, const std::string& type, const Labels& labels,
                   double value) {
    if (type == "info" && value != 1) complain(family_ + ": an info that is not 1");
    if ((type == "counter" || type == "histogram") && !(value >= 0)) {
      complain(family_ + suffix + ": neither 0 nor more");
    }
    if (type != "histogram") return;
    std::string others;
    std::string bound;
    for (const auto& [name, text] : labels) {
      if (name == "le") {
        bound = text;
      } else {
        others += name + "=" + text + ",";
      }
    }
    Histogram& histogram = histograms_[others];
    if (suffix == "_sum") histogram.has_sum = true;
    if (suffix == "_count") histogram.count = value;
    if (suffix != "_bucket") return;
    if (!is_canonical(bound)) complain(family_ + ": le=" + bound + " is not canonical");
    const double number = read_number(bound).value_or(0);
    if (!(number > histogram.last_bound)) complain(family_ + ": buckets do not rise");
    if (value < histogram.last_count) complain(family_ + ": buckets are not cumulative");
    histogram.last_bound = number;
    histogram.last_count = value;
  }

  const std::string_view text_;
  OpenMetricsPage page_;
  int line_ = 0;
  bool is_over_ = false;
  std::string family_;
  std::set<std::string> seen_;  // keywords of the family
  bool has_samples_ = false;
  std::map<std::string, Histogram> histograms_;  // of the family, by their other labels
};

}  // namespace

std::string OpenMetricsPage::verdict() const {
  std::string text;
  for (const std::string& complaint : complaints) text += complaint + "\n";
  return text;
}

OpenMetricsPage parse_openmetrics(std::string_view text) { return Parser(text).parse(); }

}  // namespace gpupool::testing_support
