// Numbers as people read them.
//
// Thread safety: plain functions. Cost: a string each.
#ifndef GPUPOOL_TOOLS_TERMINAL_UNITS_H_
#define GPUPOOL_TOOLS_TERMINAL_UNITS_H_

#include <cstdint>
#include <string>

namespace gpupool::tools {

/// Three digits with a binary unit: "512 B", "1.25 MiB", "20.1 GiB". Rounded; format_size is exact.
std::string human_bytes(std::uint64_t bytes);
/// Digits in groups of three: "933 477".
std::string grouped(std::uint64_t number);
/// The shortest exact text, as the configuration takes it: "0.5%".
std::string percent_text(double percent);
/// With `decimals` digits after the point.
std::string fixed(double number, int decimals);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TERMINAL_UNITS_H_
