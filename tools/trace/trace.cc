#include "tools/trace/trace.h"

#include <algorithm>
#include <utility>

#include "tools/trace/line_reader.h"
#include "tools/trace/read_file.h"
#include "tools/trace/readers.h"

namespace gpupool::tools {
namespace {

// Far enough to know what a file is, near enough to cost nothing.
constexpr std::size_t kLookedAt = std::size_t{64} << 10;

Status failure(const std::string& path, const ReadError& error) {
  std::string text = path + ":";
  if (error.line != 0) text += std::to_string(error.line) + ":";
  return {Error::invalid_argument, text + " " + error.reason};
}

std::string file_name(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  for (const std::string_view extension : {".gz", ".trace", ".csv"}) {
    if (name.size() > extension.size() &&
        std::string_view(name).substr(name.size() - extension.size()) == extension) {
      name.resize(name.size() - extension.size());
    }
  }
  return name;
}

/// The first line that no text has, as an error; none where `text` looks like text.
std::optional<ReadError> find_binary(std::string_view text) {
  const std::string_view start = text.substr(0, kLookedAt);
  const auto bad = std::find_if(start.begin(), start.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < ' ' && c != '\t' && c != '\n' && c != '\r') || byte == 0x7f;
  });
  if (bad == start.end()) return std::nullopt;
  const auto line = static_cast<std::size_t>(std::count(start.begin(), bad, '\n')) + 1;
  return ReadError{line, "binary data; expected a gpupool trace or a MiniMalloc CSV"};
}

/// A trace has no comma outside its '#' lines, and a CSV has one in its first line.
bool is_csv(std::string_view text) {
  if (!text.empty() && text[0] == '#') return false;
  LineReader lines(text);
  std::string_view line;
  return lines.next(line) && line.find(',') != std::string_view::npos;
}

}  // namespace

Result<Trace, Status> parse_trace(const std::string& path, std::string_view text) {
  if (text.empty()) return failure(path, {0, "is empty"});
  if (const auto binary = find_binary(text)) return failure(path, *binary);
  Result<Trace, ReadError> trace = is_csv(text) ? read_csv(text) : read_trace_format(text);
  if (!trace.ok()) return failure(path, trace.error());
  trace.value().path = path;
  trace.value().name = file_name(path);
  return std::move(trace).value();
}

Result<Trace, Status> load_trace(const std::string& path) {
  const Result<std::string, Status> text = read_text_file(path);
  if (!text.ok()) return failure(path, {0, text.error().message});
  return parse_trace(path, text.value());
}

}  // namespace gpupool::tools
