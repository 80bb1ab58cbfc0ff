#include "tools/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace gpupool::tools {
namespace {

std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// As the C library chooses the character set: the first of these that is set decides.
bool is_utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != std::string_view::npos ||
           value.find("utf8") != std::string_view::npos;
  }
  return false;
}

const char* code(Style style) {
  switch (style) {
    case Style::plain: return "";
    case Style::bold: return "\033[1m";
    case Style::dim: return "\033[2m";
    case Style::red: return "\033[31m";
  }
  return "";
}

}  // namespace

std::string Terminal::styled(std::string_view text, Style style) const {
  if (!has_colour || style == Style::plain || text.empty()) return std::string(text);
  return code(style) + std::string(text) + "\033[0m";
}

Terminal inspect_terminal(std::FILE* file) {
  Terminal terminal;
  const int descriptor = ::fileno(file);
  terminal.is_terminal = descriptor >= 0 && ::isatty(descriptor) == 1;
  if (!terminal.is_terminal) return terminal;
  terminal.has_colour = environment("NO_COLOR").empty() && environment("TERM") != "dumb";
  terminal.has_utf8 = is_utf8_locale();
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.columns = size.ws_col;
    terminal.lines = size.ws_row;
  }
  return terminal;
}

}  // namespace gpupool::tools
