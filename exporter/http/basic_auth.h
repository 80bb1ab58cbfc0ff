// Basic authentication: what a client has to send, and whether it did.
//
// The comparison takes the same time wherever texts differ, so that a password cannot be guessed
// piece by piece. Thread safety: immutable. Cost: the length of what was sent.
#ifndef GPUPOOL_EXPORTER_HTTP_BASIC_AUTH_H_
#define GPUPOOL_EXPORTER_HTTP_BASIC_AUTH_H_

#include <string>
#include <string_view>

#include "gpupool/exporter/config.h"
#include "gpupool/status.h"

namespace gpupool::internal {

class Credentials {
 public:
  /// Of `user` and `password`; with an empty user anybody is let in.
  Credentials(std::string_view user, std::string_view password);

  bool is_needed() const noexcept { return !expected_.empty(); }
  /// `authorization`: the header of that name.
  bool is_met_by(std::string_view authorization) const;

 private:
  std::string expected_;  // base64 of user:password
};

/// Reads the password from where the options say it is. Errors name the option.
Result<Credentials, Status> read_credentials(const BasicAuth& auth);

/// RFC 4648, with padding.
std::string base64(std::string_view bytes);

/// Takes time by the length of `given` alone.
bool equals_in_constant_time(std::string_view given, std::string_view secret);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_BASIC_AUTH_H_
