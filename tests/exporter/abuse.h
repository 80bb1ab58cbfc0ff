// Clients that nobody would want, for a server on 127.0.0.1, and what a process has open.
#ifndef GPUPOOL_TESTS_EXPORTER_ABUSE_H_
#define GPUPOOL_TESTS_EXPORTER_ABUSE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/exporter/http_client.h"

namespace gpupool::testing_support {

/// Threads and descriptors of this process now.
struct Footprint {
  std::size_t threads = 0;
  std::size_t descriptors = 0;
  friend bool operator==(const Footprint&, const Footprint&) = default;
};
Footprint footprint();

/// True once there are no more threads and descriptors than `before`; false after `limit`.
bool returns_to(const Footprint& before, std::chrono::seconds limit = std::chrono::seconds(15));

/// `count` connections, each of which has sent `text`.
std::vector<Connection> connect_clients(std::uint16_t port, int count, const std::string& text,
                                        int receive_buffer_bytes = 0);

/// How long a whole answer to GET `path` took, in seconds; a large number where none came, or not
/// with status 200.
double seconds_to_get(std::uint16_t port, const std::string& path);

struct CrowdResult {
  int answered = 0;    // with status 200
  double seconds = 0;  // until the last one was
};
/// `count` clients that are connected, and ask, all at once.
CrowdResult get_all_at_once(std::uint16_t port, int count, const std::string& path);

/// `bytes` of noise, the same each time.
std::string noise(std::size_t bytes);

/// So many descriptors may be open; false where the system does not allow it.
bool allow_descriptors(std::uint64_t count);

}  // namespace gpupool::testing_support

#endif  // GPUPOOL_TESTS_EXPORTER_ABUSE_H_
