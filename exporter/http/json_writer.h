// Writes JSON in order: commas, quotes and escapes are its own affair, nesting is the caller's.
//
// Text is made valid UTF-8; a number that is not finite is written as 0. Locale plays no part.
// Thread safety: one thread. Cost: appends to one string.
#ifndef GPUPOOL_EXPORTER_HTTP_JSON_WRITER_H_
#define GPUPOOL_EXPORTER_HTTP_JSON_WRITER_H_

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace gpupool::internal {

/// Appends a whole number in decimal.
template <std::integral Number>
void append_number(std::string& text, Number value) {
  std::array<char, 24> buffer;
  text.append(buffer.data(),
              std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
}

/// Times are told in milliseconds, as JavaScript does.
inline constexpr std::uint64_t kNanosecondsPerMillisecond = 1'000'000;

class JsonWriter {
 public:
  void begin_object() { open('{'); }
  void begin_object(std::string_view key) { open(key, '{'); }
  void end_object() { close('}'); }
  void begin_array(std::string_view key) { open(key, '['); }
  void end_array() { close(']'); }

  void field(std::string_view key, std::string_view value) {
    write_key(key);
    write_text(value);
  }
  void field(std::string_view key, const char* value) { field(key, std::string_view(value)); }
  template <class Number>
  requires std::integral<Number> || std::floating_point<Number>
  void field(std::string_view key, Number value) {
    write_key(key);
    write_number(value);
  }
  template <class Number>
  requires std::integral<Number> || std::floating_point<Number>
  void item(Number value) {
    separate();
    write_number(value);
  }
  void item(std::string_view value) {
    separate();
    write_text(value);
  }
  void item(const char* value) { item(std::string_view(value)); }
  /// `json` is what somebody else has written, one valid value.
  void raw_field(std::string_view key, std::string_view json) {
    write_key(key);
    text_ += json;
  }

  /// An array whose items, with the commas between them, somebody else has written.
  void raw_array(std::string_view key, std::string_view items) {
    begin_array(key);
    text_ += items;
    end_array();
  }

  void reserve(std::size_t bytes) { text_.reserve(bytes); }
  std::string take() { return std::move(text_); }

 private:
  void open(char bracket);
  void open(std::string_view key, char bracket);
  void close(char bracket);
  void separate();
  void write_key(std::string_view key);
  void write_text(std::string_view value);
  void write_real(double value);
  template <class Number>
  void write_number(Number value) {
    if constexpr (std::same_as<Number, bool>) {
      text_ += value ? "true" : "false";
    } else if constexpr (std::integral<Number>) {
      append_number(text_, value);
    } else {
      write_real(static_cast<double>(value));
    }
  }

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_JSON_WRITER_H_
