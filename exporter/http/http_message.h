// A request and its answer, free of the HTTP library, so that what is answered can be tested
// without a socket.
//
// Thread safety: plain values. Cost: the strings.
#ifndef GPUPOOL_EXPORTER_HTTP_HTTP_MESSAGE_H_
#define GPUPOOL_EXPORTER_HTTP_HTTP_MESSAGE_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpupool::internal {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // as it was sent, without the query
  std::optional<std::string> host;
  bool has_several_hosts = false;
  // Headers that were sent more than once are joined by commas; empty where there is none.
  std::string accept;
  std::string accept_encoding;
  std::string if_none_match;
  std::optional<std::string> authorization;
  std::string query;   // as it was sent, without the question mark
  std::string client;  // the address that the connection comes from
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  /// Beyond those that every answer has.
  std::vector<std::pair<std::string, std::string>> headers;
  // Used up before it is sent (transfer.h).
  std::string packed_body;  // the body in gzip's format, where somebody has made it
  std::string version;      // of the body, for who has it already; empty: not known
};

/// Called from any thread of the server, several at once. What it throws becomes a 500.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

inline constexpr int kNotModified = 304;

const char* reason_phrase(int status) noexcept;

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_HTTP_MESSAGE_H_
