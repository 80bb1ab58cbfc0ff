// What the commands share in reading their options: numbers and sizes with one strict reading
// (decimal digits, no sign, no leading zero, a stated range), unlike CLI11's own, which takes 010
// for 8 and -1 for a large number.
//
// Thread safety: one thread, while the program starts.
#ifndef GPUPOOL_TOOLS_COMMAND_LINE_H_
#define GPUPOOL_TOOLS_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tools/exit_code.h"

namespace CLI {  // NOLINT(readability-identifier-naming): their name
class App;
class Option;
}  // namespace CLI

namespace gpupool::tools {

/// What a command line asked for; main runs it once the line is read.
using Action = std::function<ExitCode()>;

/// An option with a whole number in [minimum, maximum]. `value` keeps its default where not given.
CLI::Option* add_number(CLI::App& app, const std::string& name, std::uint64_t& value,
                        std::uint64_t minimum, std::uint64_t maximum, const std::string& help);

/// An option with a decimal fraction in [minimum, maximum].
CLI::Option* add_fraction(CLI::App& app, const std::string& name, double& value, double minimum,
                          double maximum, const std::string& help);

/// An option in percent, from 0 to 100, with or without the sign.
CLI::Option* add_percent(CLI::App& app, const std::string& name, double& value,
                         const std::string& help);

/// An option with a size, as parse_size reads it.
CLI::Option* add_size(CLI::App& app, const std::string& name,
                      const std::function<void(std::uint64_t)>& take, const std::string& help);

/// Writes `text` as a line to stderr, led by the program's name.
void print_error(const std::string& text);

/// Writes `text` to stdout and makes sure that it arrived. A reader that went away (`| head`) is
/// no error; a full disk is.
ExitCode print_result(const std::string& text);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_COMMAND_LINE_H_
