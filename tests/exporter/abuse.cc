#include "tests/exporter/abuse.h"

#include <sys/resource.h>

#include <filesystem>
#include <random>
#include <thread>

namespace gpupool::testing_support {
namespace {

using Clock = std::chrono::steady_clock;

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Footprint footprint() {
  return {.threads = entries("/proc/self/task"), .descriptors = entries("/proc/self/fd")};
}

bool returns_to(const Footprint& before, std::chrono::seconds limit) {
  const auto deadline = Clock::now() + limit;
  while (Clock::now() < deadline) {
    const Footprint now = footprint();
    if (now.threads <= before.threads && now.descriptors <= before.descriptors) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

std::vector<Connection> connect_clients(std::uint16_t port, int count, const std::string& text,
                                        int receive_buffer_bytes) {
  std::vector<Connection> clients;
  clients.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    clients.emplace_back(port, receive_buffer_bytes);
    if (!text.empty()) clients.back().send(text);
  }
  return clients;
}

double seconds_to_get(std::uint16_t port, const std::string& path) {
  constexpr double kNever = 1e9;
  const auto start = Clock::now();
  const Reply reply = fetch(port, path);
  return reply.status == 200 ? seconds_since(start) : kNever;
}

CrowdResult get_all_at_once(std::uint16_t port, int count, const std::string& path) {
  const auto start = Clock::now();
  auto clients =
      connect_clients(port, count, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CrowdResult result;
  for (Connection& client : clients) {
    result.answered += client.receive().starts_with("HTTP/1.1 200 ") ? 1 : 0;
  }
  result.seconds = seconds_since(start);
  return result;
}

std::string noise(std::size_t bytes) {
  std::minstd_rand random(20240229);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random() >> 8);
  return text;
}

bool allow_descriptors(std::uint64_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  if (limit.rlim_cur >= count) return true;
  limit.rlim_cur = count;
  return count <= limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace gpupool::testing_support
