// Which paths a textfile may have: what is wrong with one, said before anything is written.
//
// node_exporter reads what ends in .prom, and whoever starts the process in another folder must not
// move the file. Thread safety: pure. Cost: none.
#ifndef GPUPOOL_EXPORTER_BASE_TEXTFILE_PATH_H_
#define GPUPOOL_EXPORTER_BASE_TEXTFILE_PATH_H_

#include <string_view>

namespace gpupool::internal {

/// nullptr where the path will do.
inline const char* textfile_path_problem(std::string_view path) noexcept {
  constexpr std::string_view kSuffix = ".prom";
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (!path.starts_with('/')) return "is no absolute path: begin it with /";
  if (!name.ends_with(kSuffix) || name.size() == kSuffix.size()) {
    return "does not end in a name with .prom, and the textfile collector reads no other";
  }
  return nullptr;
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_BASE_TEXTFILE_PATH_H_
