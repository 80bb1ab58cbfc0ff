#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/trace/line_reader.h"
#include "tools/trace/readers.h"
#include "tools/trace/trace_builder.h"

namespace gpupool::tools {
namespace {

constexpr std::string_view kVersionLine = "# gpupool allocation trace, version ";
constexpr std::size_t kBytesPerLine = 16;  // a low guess, for reserving

/// What the '#' lines say; the rest of them is for people.
struct TraceHeader {
  std::optional<double> seconds;
};

std::string read_header_json(std::string_view json, TraceHeader& header) {
  const auto object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded() || !object.is_object()) return "the header is not valid JSON";
  const auto seconds = object.find("seconds");
  if (seconds == object.end()) return {};
  if (!seconds->is_number()) return "the header's 'seconds' is not a number";
  const double value = seconds->get<double>();
  if (!std::isfinite(value) || value < 0) return "the header's 'seconds' is negative or infinite";
  header.seconds = value;
  return {};
}

std::string read_comment(std::string_view line, TraceHeader& header) {
  if (line.substr(0, kVersionLine.size()) == kVersionLine) {
    const std::string_view version = line.substr(kVersionLine.size());
    if (version != "1") return "version " + quote(version) + " is not known; this reads 1";
    return {};
  }
  const std::size_t content = line.find_first_not_of("# ");
  if (content == std::string_view::npos || line[content] != '{') return {};
  return read_header_json(line.substr(content), header);
}

struct Kind {
  char letter;
  std::size_t min_fields;
  std::size_t max_fields;
  const char* form;
};
constexpr Kind kKinds[] = {
    {'a', 5, 5, "a ID BYTES STREAM DT"}, {'f', 3, 4, "f ID DT [STREAM]"}, {'c', 3, 3, "c ID DT"}};
constexpr const char* kFieldNames[3][4] = {
    {"ID", "BYTES", "STREAM", "DT"}, {"ID", "DT", "STREAM", ""}, {"ID", "DT", "", ""}};

std::string read_event(std::string_view line, std::size_t line_number, TraceBuilder& builder) {
  if (line.empty()) return "empty line; expected a, f or c and its fields";
  const Fields fields = split(line, ' ');
  std::size_t k = 0;
  while (k < std::size(kKinds) && fields.text[0] != std::string_view(&kKinds[k].letter, 1)) ++k;
  if (k == std::size(kKinds)) {
    return "unknown kind of line " + quote(fields.text[0]) + "; expected a, f or c";
  }
  const Kind& kind = kKinds[k];
  if (fields.count < kind.min_fields || fields.count > kind.max_fields) {
    return std::string(fields.count < kind.min_fields ? "too few" : "too many") + " fields (" +
           std::to_string(fields.count) + "); expected '" + kind.form + "'";
  }
  std::uint64_t number[4] = {};
  for (std::size_t i = 0; i + 1 < fields.count; ++i) {
    if (!parse_number(fields.text[i + 1], number[i])) {
      return number_refusal(fields.text[i + 1], kFieldNames[k][i]);
    }
  }
  switch (kind.letter) {
    case 'a': return builder.allocate(number[0], number[1], number[2], number[3], line_number);
    case 'f': {
      const bool has_stream = fields.count == kind.max_fields;
      return builder.free(number[0], number[1], line_number,
                          has_stream ? std::optional(number[2]) : std::nullopt);
    }
    default: return builder.complete(number[0], number[1], line_number);
  }
}

}  // namespace

Result<Trace, ReadError> read_trace_format(std::string_view text) {
  TraceBuilder builder(text.size() / kBytesPerLine);
  LineReader lines(text);
  TraceHeader header;
  std::string_view line;
  while (lines.next(line)) {
    std::string reason;
    if (!line.empty() && line[0] == '#') {
      // Only what stands before the first operation is a header; later it is a remark.
      if (builder.is_empty()) reason = read_comment(line, header);
    } else {
      reason = read_event(line, lines.line_number(), builder);
    }
    if (!reason.empty()) return ReadError{lines.line_number(), std::move(reason)};
  }
  if (builder.is_empty()) return ReadError{0, "has no operations"};
  constexpr double kSecondsPerUs = 1e-6;
  const double recorded = static_cast<double>(builder.recorded_us()) * kSecondsPerUs;
  Trace trace = builder.finish();
  trace.seconds = header.seconds.value_or(recorded);
  return trace;
}

}  // namespace gpupool::tools
