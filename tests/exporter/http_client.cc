#include "tests/exporter/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace gpupool::testing_support {

Connection::Connection(std::uint16_t port, int receive_buffer_bytes) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer_bytes > 0) {
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    fd_ = fd;
  } else if (fd >= 0) {
    close(fd);
  }
}

Connection::~Connection() {
  if (fd_ >= 0) close(fd_);
}

void Connection::send(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t sent = ::send(fd_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (sent <= 0) return;
    done += static_cast<std::size_t>(sent);
  }
}

std::string Connection::receive(std::chrono::milliseconds limit) {
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || poll(&waiting, 1, static_cast<int>(left.count())) <= 0) return text;
    const ssize_t got = recv(fd_, buffer.data(), buffer.size(), 0);
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

Reply fetch(std::uint16_t port, const std::string& path, const std::string& method,
            const std::string& extra_headers) {
  Reply reply;
  Connection connection(port);
  if (!connection.is_open()) return reply;
  connection.send(method + " " + path + " HTTP/1.1\r\n" + extra_headers + "\r\n");
  const std::string text = connection.receive();
  const std::size_t head_end = text.find("\r\n\r\n");
  if (head_end == std::string::npos || text.size() < 12) return reply;
  reply.status = std::atoi(text.c_str() + 9);
  reply.body = text.substr(head_end + 4);
  std::size_t begin = text.find("\r\n") + 2;
  while (begin < head_end) {
    const std::size_t end = text.find("\r\n", begin);
    const std::size_t colon = text.find(": ", begin);
    if (colon < end) {
      reply.headers[text.substr(begin, colon - begin)] = text.substr(colon + 2, end - colon - 2);
    }
    begin = end + 2;
  }
  return reply;
}

}  // namespace gpupool::testing_support
