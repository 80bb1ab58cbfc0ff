// Text from outside (names, tags, files) checked or made fit for what must be UTF-8: a label with
// one bad byte makes Prometheus drop a whole scrape.
//
// Well-formed as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
// Thread safety: plain functions. Cost: one pass.
#ifndef GPUPOOL_EXPORTER_BASE_UTF8_H_
#define GPUPOOL_EXPORTER_BASE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace gpupool::internal {

/// Length of the longest well-formed start of `text`; text.size() where all of it is.
std::size_t valid_utf8_prefix(std::string_view text) noexcept;

/// `text` with each byte that belongs to no character replaced by U+FFFD.
std::string to_valid_utf8(std::string_view text);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_BASE_UTF8_H_
