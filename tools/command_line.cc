#include "tools/command_line.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "gpupool/size_text.h"
#include "tools/trace/line_reader.h"

namespace gpupool::tools {
namespace {

/// The shortest text of `number`: 0.5, 100, 1000000.
std::string number_text(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.7g", number);
  return buffer;
}

bool parse_fraction(const std::string& text, double& value) {
  // Digits and at most one point: no sign, exponent, "inf" or "nan".
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string::npos) return false;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  return result.ec == std::errc() && result.ptr == end && std::isfinite(value);
}

}  // namespace

CLI::Option* add_number(CLI::App& app, const std::string& name, std::uint64_t& value,
                        std::uint64_t minimum, std::uint64_t maximum, const std::string& help) {
  const auto take = [name, &value, minimum, maximum](const std::string& text) {
    std::uint64_t number = 0;
    const bool has_leading_zero = text.size() > 1 && text[0] == '0';
    if (has_leading_zero || !parse_number(text, number) || number < minimum || number > maximum) {
      throw CLI::ValidationError(name, quote(text) + " is not a whole decimal number from " +
                                           std::to_string(minimum) + " to " +
                                           std::to_string(maximum));
    }
    value = number;
  };
  return app.add_option_function<std::string>(name, take, help)->type_name("N");
}

CLI::Option* add_fraction(CLI::App& app, const std::string& name, double& value, double minimum,
                          double maximum, const std::string& help) {
  const auto take = [name, &value, minimum, maximum](const std::string& text) {
    double number = 0;
    if (!parse_fraction(text, number) || number < minimum || number > maximum) {
      throw CLI::ValidationError(name, quote(text) + " is not a decimal number from " +
                                           number_text(minimum) + " to " + number_text(maximum));
    }
    value = number;
  };
  return app.add_option_function<std::string>(name, take, help)->type_name("X");
}

CLI::Option* add_percent(CLI::App& app, const std::string& name, double& value,
                         const std::string& help) {
  const auto take = [name, &value](const std::string& text) {
    double number = 0;
    const bool has_sign = !text.empty() && text.back() == '%';
    const std::string digits = has_sign ? text.substr(0, text.size() - 1) : text;
    if (!parse_fraction(digits, number) || number > 100) {
      throw CLI::ValidationError(
          name, quote(text) + " is not a decimal number from 0 to 100, such as 5 or 5%");
    }
    value = number;
  };
  return app.add_option_function<std::string>(name, take, help + "; 5 means 5 %, as 5% does")
      ->type_name("X");
}

CLI::Option* add_size(CLI::App& app, const std::string& name,
                      const std::function<void(std::uint64_t)>& take, const std::string& help) {
  const auto read = [name, take](const std::string& text) {
    const Result<std::uint64_t, std::string> bytes = parse_size(text);
    if (!bytes.ok()) throw CLI::ValidationError(name, bytes.error());
    take(bytes.value());
  };
  return app.add_option_function<std::string>(name, read, help)->type_name("SIZE");
}

void print_error(const std::string& text) { std::fprintf(stderr, "gpupool: %s\n", text.c_str()); }

ExitCode print_result(const std::string& text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return ExitCode::finished;
  if (errno == EPIPE) return ExitCode::finished;
  print_error(std::string("cannot write the result: ") + std::strerror(errno));
  return ExitCode::internal_error;
}

}  // namespace gpupool::tools
