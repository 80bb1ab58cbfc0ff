#include "exporter/http/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "exporter/base/utf8.h"

namespace gpupool::internal {

void JsonWriter::separate() {
  if (needs_comma_) text_ += ',';
  needs_comma_ = true;
}

void JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  needs_comma_ = false;
}

void JsonWriter::open(std::string_view key, char bracket) {
  write_key(key);
  text_ += bracket;
  needs_comma_ = false;
}

void JsonWriter::close(char bracket) {
  text_ += bracket;
  needs_comma_ = true;
}

void JsonWriter::write_key(std::string_view key) {
  separate();
  write_text(key);
  text_ += ':';
}

void JsonWriter::write_text(std::string_view value) {
  text_ += '"';
  for (const char c : to_valid_utf8(value)) {
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (c >= 0 && c < ' ') {
      std::array<char, 8> escape;
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      text_ += escape.data();
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

void JsonWriter::write_real(double value) {
  if (!std::isfinite(value)) value = 0;
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  text_.append(buffer.data(), error == std::errc() ? end : buffer.data());
}

}  // namespace gpupool::internal
