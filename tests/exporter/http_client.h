// The smallest HTTP client that the tests need: one request, one answer, with a time limit.
#ifndef GPUPOOL_TESTS_EXPORTER_HTTP_CLIENT_H_
#define GPUPOOL_TESTS_EXPORTER_HTTP_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace gpupool::testing_support {

/// A TCP connection to 127.0.0.1 that is closed at the end of its scope.
class Connection {
 public:
  /// With `receive_buffer_bytes` the kernel takes about so much that nobody reads, and no more.
  explicit Connection(std::uint16_t port, int receive_buffer_bytes = 0);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  Connection(Connection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

  bool is_open() const { return fd_ >= 0; }
  void send(const std::string& text);
  /// All that comes until the other side closes or `limit` is over.
  std::string receive(std::chrono::milliseconds limit = std::chrono::seconds(10));

 private:
  int fd_ = -1;
};

struct Reply {
  int status = 0;  // 0: no answer
  std::map<std::string, std::string> headers;
  std::string body;
};

Reply fetch(std::uint16_t port, const std::string& path, const std::string& method = "GET",
            const std::string& extra_headers = "Host: localhost\r\n");

}  // namespace gpupool::testing_support

#endif  // GPUPOOL_TESTS_EXPORTER_HTTP_CLIENT_H_
