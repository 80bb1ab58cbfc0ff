// Sizes in bytes as people write them: `8GiB`, `512 MiB`, `64KB`, `1048576`.
//
//   size = number [" "] [unit]     number: decimal digits, no sign, fraction or leading zero
//   unit = B | KiB MiB GiB TiB (2^10, 2^20, ...) | KB MB GB TB (10^3, 10^6, ...)
//
// One reading for the command line, the configuration and every text that is printed:
// parse_size(format_size(n)) == n for every n.
// Thread safety: plain functions. Cost: a parse takes nothing from the heap unless it fails.
#ifndef GPUPOOL_SIZE_TEXT_H_
#define GPUPOOL_SIZE_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "gpupool/status.h"

namespace gpupool {

/// The bytes that `text` means, or what is wrong with it and what is allowed.
Result<std::uint64_t, std::string> parse_size(std::string_view text);

/// The shortest exact form: the largest binary unit that divides `bytes`, else plain bytes.
std::string format_size(std::uint64_t bytes);

}  // namespace gpupool

#endif  // GPUPOOL_SIZE_TEXT_H_
