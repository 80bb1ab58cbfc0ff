#include <algorithm>
#include <array>
#include <unordered_map>

#include "tools/trace/line_reader.h"
#include "tools/trace/readers.h"
#include "tools/trace/trace_builder.h"

namespace gpupool::tools {
namespace {

enum Column : std::size_t { kId, kLower, kUpper, kSize, kColumnCount };
constexpr std::array<std::string_view, kColumnCount> kColumnNames = {"id", "lower", "upper",
                                                                     "size"};
constexpr std::string_view kExpected = "expected the columns id, lower, upper, size";

/// position[c]: where the file has column c.
struct CsvHeader {
  std::array<std::size_t, kColumnCount> position{};
};

std::string read_header(std::string_view line, CsvHeader& header) {
  const Fields fields = split(line, ',');
  std::array<bool, kColumnCount> seen{};
  for (std::size_t i = 0; i < std::min(fields.count, kMaxFields); ++i) {
    const auto found = std::find(kColumnNames.begin(), kColumnNames.end(), fields.text[i]);
    if (found == kColumnNames.end()) {
      return "unknown column " + quote(fields.text[i]) + "; " + std::string(kExpected);
    }
    const auto column = static_cast<std::size_t>(found - kColumnNames.begin());
    if (seen[column]) {
      return "column " + quote(fields.text[i]) + " twice; " + std::string(kExpected);
    }
    seen[column] = true;
    header.position[column] = i;
  }
  for (std::size_t c = 0; c < kColumnCount; ++c) {
    if (!seen[c]) return "no column " + quote(kColumnNames[c]) + "; " + std::string(kExpected);
  }
  return {};
}

struct Buffer {
  std::array<std::uint64_t, kColumnCount> value{};
  std::size_t line = 0;
};

std::string read_buffer(std::string_view line, const CsvHeader& header, Buffer& buffer) {
  if (line.empty()) return "empty line; expected four numbers";
  const Fields fields = split(line, ',');
  if (fields.count != kColumnCount) {
    return std::string(fields.count < kColumnCount ? "too few" : "too many") + " fields (" +
           std::to_string(fields.count) + "); " + std::string(kExpected);
  }
  for (std::size_t c = 0; c < kColumnCount; ++c) {
    const std::string_view text = fields.text[header.position[c]];
    if (!parse_number(text, buffer.value[c])) return number_refusal(text, kColumnNames[c]);
  }
  if (buffer.value[kLower] > buffer.value[kUpper]) {
    return "lower " + std::to_string(buffer.value[kLower]) + " is after upper " +
           std::to_string(buffer.value[kUpper]);
  }
  return {};
}

struct Event {
  std::uint64_t time = 0;
  bool is_allocation = false;
  std::size_t buffer = 0;
};

/// Buffers with different ids and lower < upper give a list that the builder cannot refuse, but
/// for its bounds.
Result<Trace, ReadError> build(const std::vector<Buffer>& buffers) {
  std::vector<Event> events;
  events.reserve(2 * buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = buffers[i];
    if (buffer.value[kLower] == buffer.value[kUpper]) continue;
    events.push_back({buffer.value[kLower], true, i});
    events.push_back({buffer.value[kUpper], false, i});
  }
  if (events.empty()) return ReadError{0, "has no operations"};
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.is_allocation < b.is_allocation;
  });
  TraceBuilder builder(events.size());
  for (const Event& event : events) {
    const Buffer& buffer = buffers[event.buffer];
    std::string reason =
        event.is_allocation
            ? builder.allocate(buffer.value[kId], buffer.value[kSize], 0, 0, buffer.line)
            : builder.free(buffer.value[kId], 0, buffer.line);
    if (!reason.empty()) return ReadError{buffer.line, std::move(reason)};
  }
  return builder.finish();
}

}  // namespace

Result<Trace, ReadError> read_csv(std::string_view text) {
  LineReader lines(text);
  std::string_view line;
  CsvHeader header;
  if (!lines.next(line)) return ReadError{0, "is empty"};
  if (std::string reason = read_header(line, header); !reason.empty()) {
    return ReadError{lines.line_number(), std::move(reason)};
  }
  std::vector<Buffer> buffers;
  std::unordered_map<std::uint64_t, std::size_t> line_of_id;
  while (lines.next(line)) {
    Buffer buffer;
    buffer.line = lines.line_number();
    std::string reason = read_buffer(line, header, buffer);
    if (reason.empty()) {
      const auto [entry, is_new] = line_of_id.emplace(buffer.value[kId], buffer.line);
      if (!is_new) {
        reason = "id " + std::to_string(entry->first) + " twice (first on line " +
                 std::to_string(entry->second) + ")";
      }
    }
    if (!reason.empty()) return ReadError{buffer.line, std::move(reason)};
    buffers.push_back(buffer);
  }
  return build(buffers);
}

}  // namespace gpupool::tools
