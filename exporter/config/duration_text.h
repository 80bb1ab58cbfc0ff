// Times as people write them: `60s`, `500 ms`, `5min`, `2h`, and `0` for none.
//
//   duration = number [" "] unit | "0"     number: decimal digits, no sign, fraction or leading
//   zero unit = ns | us | ms | s | min | h
//
// parse_duration(format_duration(n)) == n for every n.
// Thread safety: plain functions. Cost: a string where refused.
#ifndef GPUPOOL_EXPORTER_CONFIG_DURATION_TEXT_H_
#define GPUPOOL_EXPORTER_CONFIG_DURATION_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "exporter/config/scalars.h"

namespace gpupool::internal {

/// The nanoseconds that `text` means, or what is wrong with it and what is allowed.
Read<std::uint64_t> parse_duration(std::string_view text);

/// The shortest exact form: the largest unit that divides `ns`.
std::string format_duration(std::uint64_t ns);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_CONFIG_DURATION_TEXT_H_
