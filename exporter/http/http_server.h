// The packaged CivetWeb, made safe to have inside somebody else's process. All that is known of
// CivetWeb in this product is in http_server.cc.
//
// Note [CivetWeb in a host process]. What the packaged version does by itself, and what is done
// about it here:
//   - every thread sets SIGPIPE to ignored for the whole process: each puts back what was there;
//   - threads inherit the caller's signal mask and would run its handlers: all signals are blocked
//     while they start;
//   - a silent client holds a worker: 32 workers and a timeout of 0.5 s, no keep-alive, WebSocket,
//     TLS (it crashes) or files (document_root);
//   - a client that does not read holds a worker, too: what is larger than the kernel takes over is
//     sent to 8 clients at a time, the others get a 503 at once;
//   - every connection that waits holds one of the host's descriptors: at most 64 do, the others
//     wait in the kernel;
//   - URIs match by prefix, and requests that come before handlers are registered get a 404: one
//     callback that is there from the start sees every request and compares whole paths;
//   - its own error answers call gmtime(), which is the host's, too: they are written here;
//   - an exception in a callback ends the program: all are caught;
//   - at its end it leaves open what it has accepted and given to no worker: closed here;
//   - the socket survives fork: fork_guard.h; a forked child must not stop the server, whose
//     threads it does not have: nothing is done there;
//   - a port that is taken is reported without its errno: the port is probed first.
//
// Thread safety: start and stop from one thread. Cost: 33 threads with 100 KiB stacks, asleep.
#ifndef GPUPOOL_EXPORTER_HTTP_HTTP_SERVER_H_
#define GPUPOOL_EXPORTER_HTTP_HTTP_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "exporter/http/http_message.h"
#include "gpupool/status.h"

namespace gpupool::internal {

struct ListenOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free one
  std::uint16_t port_count = 1;
  /// Which port of the range is tried first; after its end the others follow, from its start.
  std::uint16_t first = 0;
};

class HttpServer {
 public:
  /// Serves on the first port of the range that can be had. The error names address, port and
  /// the system's reason.
  static Result<std::unique_ptr<HttpServer>, Status> start(const ListenOptions& options,
                                                           const HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const noexcept;
  /// Joins the threads; up to 2 s. In a forked child it does nothing.
  void stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_HTTP_SERVER_H_
