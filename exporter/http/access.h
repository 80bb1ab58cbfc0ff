// Who is answered. Asked of every request, before anything is looked up:
//
//   network  the client's address lies in one of the networks allowed, if any is named;
//   host     on loopback a request must name this machine, or a web site could read everything
//            through a visitor's browser by pointing its own name here; beyond, one of the names
//            that were configured, if any were. An IP address is no name that can be pointed;
//   user     basic authentication, for all paths but the health checks, whose askers cannot log in.
//
// Thread safety: immutable. Cost: a few comparisons.
#ifndef GPUPOOL_EXPORTER_HTTP_ACCESS_H_
#define GPUPOOL_EXPORTER_HTTP_ACCESS_H_

#include <optional>
#include <string>
#include <vector>

#include "exporter/base/network.h"
#include "exporter/http/basic_auth.h"
#include "exporter/http/http_message.h"
#include "gpupool/exporter/config.h"
#include "gpupool/status.h"

namespace gpupool::internal {

class Access {
 public:
  /// Errors name the option.
  static Result<Access, Status> create(const ExporterOptions& options);

  bool is_loopback() const noexcept { return is_loopback_; }
  /// Whether the page and the API are served.
  bool is_page_served() const noexcept { return is_loopback_ || is_page_public_; }
  /// Whether addresses and names of tags are shown.
  bool are_details_shown() const noexcept { return is_loopback_ || are_details_public_; }

  /// The answer to a request that is refused; nothing where it goes on.
  std::optional<HttpResponse> refusal(const HttpRequest& request, bool is_health_check) const;

 private:
  Access(const ExporterOptions& options, std::vector<Network> networks, Credentials credentials);
  bool is_network_allowed(const HttpRequest& request) const;
  bool is_host_allowed(const HttpRequest& request) const;

  std::string bound_address_;
  bool is_loopback_;
  bool is_page_public_;
  bool are_details_public_;
  std::vector<std::string> host_names_;
  std::vector<Network> networks_;
  Credentials credentials_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_ACCESS_H_
