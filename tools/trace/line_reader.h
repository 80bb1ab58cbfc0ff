// Lines and their fields, without copies: what both trace readers share.
//
// Thread safety: plain values. Cost: a memchr a line; failing is slow, succeeding takes no heap.
#ifndef GPUPOOL_TOOLS_TRACE_LINE_READER_H_
#define GPUPOOL_TOOLS_TRACE_LINE_READER_H_

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace gpupool::tools {

class LineReader {
 public:
  explicit LineReader(std::string_view text) : rest_(text) {}
  /// The next line without its end (LF or CRLF); false where there is none left.
  bool next(std::string_view& line);
  /// Of the line that next() gave last, from 1.
  std::size_t line_number() const { return line_number_; }

 private:
  std::string_view rest_;
  std::size_t line_number_ = 0;
};

inline constexpr std::size_t kMaxFields = 8;

struct Fields {
  std::array<std::string_view, kMaxFields> text;
  std::size_t count = 0;  // how many there are, also beyond kMaxFields
};

/// Splits at every `separator`; two in a row make an empty field.
Fields split(std::string_view line, char separator);

/// Reads an unsigned decimal number that is the whole of `text`.
inline bool parse_number(std::string_view text, std::uint64_t& value) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

/// Why parse_number refused `text`, naming the field.
std::string number_refusal(std::string_view text, std::string_view field);

/// `text` in quotes, cut and without what would upset a terminal.
std::string quote(std::string_view text);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TRACE_LINE_READER_H_
