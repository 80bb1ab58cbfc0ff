#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "exporter/config/yaml_document.h"
#include "gpupool/exporter/config.h"

namespace gpupool {
namespace {

std::string errno_text(int error) { return std::generic_category().message(error); }

struct ReadFailure {
  std::string text;
};

/// The bytes of `path`, one more than allowed at most, so that a device or a pipe without end is
/// refused like a file that is too large.
Result<std::string, ReadFailure> read_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return ReadFailure{"cannot be opened: " + errno_text(errno)};
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() <= internal::kMaxConfigBytes) {
    const ssize_t got = read(file, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      close(file);
      return ReadFailure{"cannot be read: " + errno_text(error)};
    }
    if (got == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  close(file);
  return text;
}

}  // namespace

Result<Config, std::vector<ConfigError>> load_config_file(const std::string& path) {
  auto text = read_file(path);
  if (!text.ok()) return std::vector<ConfigError>{{0, "", text.error().text}};
  auto config = parse_config(text.value());
  if (config.ok()) config.value().path = path;
  return config;
}

OnConfigError find_on_config_error_in_file(const std::string& path) {
  const auto text = read_file(path);
  return text.ok() ? find_on_config_error(text.value()) : OnConfigError::stop;
}

}  // namespace gpupool
