#include "exporter/http/basic_auth.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "exporter/base/token.h"
#include "exporter/http/socket_address.h"

namespace gpupool::internal {
namespace {

constexpr std::string_view kScheme = "Basic ";
constexpr std::size_t kMaxPasswordBytes = 1024;

Status invalid(const std::string& option, const std::string& what) {
  return {Error::invalid_argument, "exporter.auth." + option + ": " + what};
}

Result<std::string, Status> read_password_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return invalid("password_file", path + ": " + errno_text(errno));
  std::string text(kMaxPasswordBytes + 2, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return invalid("password_file", path + " cannot be read");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

Result<std::string, Status> read_password(const BasicAuth& auth, std::string& option) {
  if (!auth.password_file.empty()) {
    option = "password_file";
    return read_password_file(auth.password_file);
  }
  if (!auth.password_env.empty()) {
    option = "password_env";
    const char* const value = std::getenv(auth.password_env.c_str());
    if (value == nullptr) {
      return invalid(option, "the environment has no variable " + auth.password_env);
    }
    return std::string(value);
  }
  option = "password";
  return auth.password;
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr std::size_t kGroup = 3;
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += kGroup) {
    const auto byte = [&](std::size_t k) {
      return i + k < bytes.size() ? static_cast<std::uint8_t>(bytes[i + k]) : std::uint32_t{0};
    };
    const std::uint32_t group = byte(0) << 16 | byte(1) << 8 | byte(2);
    text += kDigits[group >> 18];
    text += kDigits[group >> 12 & 63];
    text += i + 1 < bytes.size() ? kDigits[group >> 6 & 63] : '=';
    text += i + 2 < bytes.size() ? kDigits[group & 63] : '=';
  }
  return text;
}

bool equals_in_constant_time(std::string_view given, std::string_view secret) {
  if (secret.empty()) return given.empty();
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(given[i]) ^
                                        static_cast<unsigned char>(secret[i % secret.size()]));
  }
  return difference == 0;
}

Credentials::Credentials(std::string_view user, std::string_view password) {
  if (!user.empty()) expected_ = base64(std::string(user) + ":" + std::string(password));
}

bool Credentials::is_met_by(std::string_view authorization) const {
  if (!is_needed()) return true;
  if (!equals(authorization.substr(0, kScheme.size()), kScheme)) return false;
  authorization.remove_prefix(kScheme.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  while (authorization.ends_with(' ')) authorization.remove_suffix(1);
  return equals_in_constant_time(authorization, expected_);
}

Result<Credentials, Status> read_credentials(const BasicAuth& auth) {
  if (auth.user.empty()) return Credentials("", "");
  if (auth.user.find(':') != std::string::npos) return invalid("user", "has a colon");
  std::string option;
  auto password = read_password(auth, option);
  if (!password.ok()) return password.error();
  if (password.value().empty()) return invalid(option, "is empty");
  if (password.value().size() > kMaxPasswordBytes) {
    return invalid(option, "is longer than " + std::to_string(kMaxPasswordBytes) + " bytes");
  }
  return Credentials(auth.user, password.value());
}

}  // namespace gpupool::internal
