// The errors of one configuration, and the key paths that they show: `pool.capacity`, `tags[2]`.
//
// Keys and values come from the file, so what is shown of them is cut and made printable.
// Thread safety: plain values. Cost: a string an error.
#ifndef GPUPOOL_EXPORTER_CONFIG_ERROR_LIST_H_
#define GPUPOOL_EXPORTER_CONFIG_ERROR_LIST_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gpupool/exporter/config.h"

namespace gpupool::internal {

/// `text` fit for one line of an error message: at most 40 bytes, no control characters.
std::string printable(std::string_view text);

std::string join_path(std::string_view parent, std::string_view key);
std::string join_path(std::string_view parent, std::size_t index);

class ErrorList {
 public:
  /// Errors beyond are counted, not listed: a file of another kind must not fill a terminal.
  static constexpr std::size_t kMaxListed = 100;

  void add(int line, std::string key_path, std::string message);
  bool empty() const noexcept { return errors_.empty(); }
  /// In the order of lines; the last tells how many more there were.
  std::vector<ConfigError> take();

 private:
  std::vector<ConfigError> errors_;
  std::size_t unlisted_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_CONFIG_ERROR_LIST_H_
