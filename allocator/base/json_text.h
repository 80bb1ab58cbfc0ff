// A JSON text (RFC 8259) as it is written: objects, arrays and values, with commas where they
// belong.
//
// Keys and texts are UTF-8 as given; quotes, backslashes and control characters are escaped. What
// JSON has no number for is written as 0.
// The exporter has a writer of its own, exporter/http/json_writer.h: it may include public headers
// alone, and has to make text of others valid UTF-8, which the names that come here are.
// Thread safety: none. Cost: a string that grows.
#ifndef GPUPOOL_BASE_JSON_TEXT_H_
#define GPUPOOL_BASE_JSON_TEXT_H_

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <string>
#include <string_view>
#include <utility>

namespace gpupool::internal {

class JsonText {
 public:
  /// In an object, after this comes the member's value.
  JsonText& key(std::string_view name) {
    separate();
    append_quoted(name);
    text_ += ':';
    needs_comma_ = false;
    return *this;
  }
  void open(char bracket) {
    separate();
    text_ += bracket;
    needs_comma_ = false;
  }
  void close(char bracket) {
    text_ += bracket;
    needs_comma_ = true;
  }
  void value(std::string_view text) {
    separate();
    append_quoted(text);
  }
  void value(const char* text) { value(std::string_view(text)); }
  void value(bool is_true) {
    separate();
    text_ += is_true ? "true" : "false";
  }
  void null() {
    separate();
    text_ += "null";
  }
  template <std::integral Number>
  void value(Number number) {
    separate();
    text_ += std::to_string(number);
  }
  void value(double number) {
    separate();
    std::array<char, 32> buffer;
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                   std::isfinite(number) ? number : 0.0);
    text_.append(buffer.data(), end.ptr);
  }
  template <class Value>
  void field(std::string_view name, const Value& it) {
    key(name).value(it);
  }
  std::string take() { return std::move(text_); }

 private:
  void separate() {
    if (needs_comma_) text_ += ',';
    needs_comma_ = true;
  }
  void append_quoted(std::string_view text) {
    constexpr char kDigits[] = "0123456789abcdef";
    text_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') text_ += '\\';
      if (static_cast<unsigned char>(c) >= 0x20) {
        text_ += c;
      } else {
        text_ += "\\u00";
        text_ += kDigits[c >> 4];
        text_ += kDigits[c & 15];
      }
    }
    text_ += '"';
  }

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_JSON_TEXT_H_
