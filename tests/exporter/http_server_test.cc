// The HTTP server inside a process that must not notice it: clients that misbehave, ports that are
// taken, signals, forks.
#include "exporter/http/http_server.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "exporter/http/socket_address.h"
#include "tests/exporter/http_client.h"

namespace gpupool::internal {
namespace {

using testing_support::Connection;
using testing_support::fetch;
using testing_support::Reply;

HttpResponse echo(const HttpRequest& request) {
  if (request.path == "/throw") throw std::runtime_error("thrown on purpose");
  if (request.path == "/throw-other") throw 7;
  HttpResponse response;
  response.headers.emplace_back("X-Test", "yes");
  response.body = request.method + " " + request.path + " " + request.host.value_or("none") + "\n";
  return response;
}

sigset_t current_mask() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return mask;
}

// One server for all cases, never stopped, as that takes up to 2 s.
struct Shared {
  struct sigaction sigpipe_before {};
  struct sigaction sigpipe_after {};
  sigset_t mask_before{};
  sigset_t mask_after{};
  std::unique_ptr<HttpServer> server;

  Shared() {
    sigaction(SIGPIPE, nullptr, &sigpipe_before);
    mask_before = current_mask();
    auto started = HttpServer::start({.address = "127.0.0.1", .port = 0}, echo);
    if (started.ok()) server = std::move(started).value();
    mask_after = current_mask();
    sigaction(SIGPIPE, nullptr, &sigpipe_after);
  }
};

Shared& shared() {
  static auto* const instance = new Shared();
  return *instance;
}

class HttpServerTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(shared().server, nullptr); }
  static std::uint16_t port() { return shared().server->port(); }
};

TEST_F(HttpServerTest, AnswersWithLengthAndHeaders) {
  const Reply reply = fetch(port(), "/some/path?query=1");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "GET /some/path localhost\n");
  EXPECT_EQ(reply.headers.at("Content-Length"), std::to_string(reply.body.size()));
  EXPECT_EQ(reply.headers.at("Connection"), "close");
  EXPECT_EQ(reply.headers.at("X-Test"), "yes");
}

TEST_F(HttpServerTest, HeadHasTheLengthAndNoBody) {
  const Reply reply = fetch(port(), "/x", "HEAD");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("Content-Length"), "18");
  EXPECT_EQ(reply.body, "");
}

TEST_F(HttpServerTest, EveryMethodReachesTheHandler) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    const Reply reply = fetch(port(), "/x", method);
    EXPECT_EQ(reply.status, 200) << method;
    EXPECT_EQ(reply.body, std::string(method) + " /x localhost\n");
  }
}

TEST_F(HttpServerTest, RequestsThatCivetWebRefusesAreAnsweredInTheWordsOfTheStandard) {
  const auto first_line = [](const std::string& request) {
    Connection connection(port());
    connection.send(request);
    const std::string text = connection.receive();
    return text.substr(0, text.find("\r\n"));
  };
  EXPECT_EQ(first_line("GET /x HTTP/3.0\r\nHost: localhost\r\n\r\n"),
            "HTTP/1.1 505 HTTP Version Not Supported");
  EXPECT_EQ(first_line("what is this\r\n\r\n"), "HTTP/1.1 400 Bad Request");
  // All that CivetWeb refuses a request with.
  for (const int status : {400, 404, 408, 411, 413, 414, 417, 431, 500, 501, 503, 505}) {
    EXPECT_STRNE(reason_phrase(status), reason_phrase(499)) << status;
    EXPECT_STRNE(reason_phrase(status), reason_phrase(599)) << status;
  }
}

TEST_F(HttpServerTest, NothingIsAnsweredBesideTheHandler) {
  // Paths out of the root and absolute addresses are CivetWeb's to normalise, refuse or drop,
  // never to serve: there is no document root.
  for (const char* path : {"/../../etc/passwd", "/%2e%2e/etc/passwd", "http://x/y", "*"}) {
    const Reply reply = fetch(port(), path);
    const bool is_refused = reply.status == 0 || reply.status >= 400;
    EXPECT_TRUE(is_refused || reply.headers.contains("X-Test")) << path << reply.body;
    EXPECT_EQ(reply.body.find("root:"), std::string::npos);
  }
  const Reply too_long = fetch(port(), "/" + std::string(20'000, 'x'));
  EXPECT_GE(too_long.status, 400);
  EXPECT_FALSE(too_long.headers.contains("Date")) << "CivetWeb's own answer calls gmtime()";
}

TEST_F(HttpServerTest, AnExceptionIsA500AndTheNextRequestIsServed) {
  EXPECT_EQ(fetch(port(), "/throw").status, 500);
  EXPECT_EQ(fetch(port(), "/throw-other").status, 500);
  EXPECT_EQ(fetch(port(), "/x").status, 200);
}

TEST_F(HttpServerTest, SignalsAreLeftAsTheyWere) {
  EXPECT_EQ(shared().sigpipe_before.sa_handler, SIG_DFL);
  EXPECT_EQ(shared().sigpipe_after.sa_handler, SIG_DFL);
  for (int signal = 1; signal < SIGRTMAX; ++signal) {
    EXPECT_EQ(sigismember(&shared().mask_before, signal), sigismember(&shared().mask_after, signal))
        << signal;
  }
}

TEST_F(HttpServerTest, ItsThreadsBlockTheProgramsSignals) {
  int seen = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(getpid())) continue;
    std::ifstream status(task.path() / "status");
    std::string line;
    while (std::getline(status, line)) {
      if (!line.starts_with("SigBlk:")) continue;
      const std::uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
      for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGPIPE, SIGCHLD}) {
        EXPECT_TRUE((blocked >> (signal - 1)) & 1) << signal << " " << line;
      }
      ++seen;
    }
  }
  EXPECT_GE(seen, 33);
}

TEST_F(HttpServerTest, CaseD4FiftySilentClientsDelayAScrapeByLessThanTwoSeconds) {
  std::vector<Connection> clients;
  for (int i = 0; i < 50; ++i) {
    clients.emplace_back(port());
    ASSERT_TRUE(clients.back().is_open());
    if (i % 2 == 0) clients.back().send("GET /metr");
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(fetch(port(), "/x").status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST_F(HttpServerTest, AClientThatGoesAwayHarmsNobody) {
  for (int i = 0; i < 20; ++i) {
    Connection client(port());
    client.send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  EXPECT_EQ(fetch(port(), "/x").status, 200);
}

// Ports and addresses that cannot be had.

TEST_F(HttpServerTest, CaseD2ATakenPortIsAnErrorWithAddressPortAndReason) {
  const auto second = HttpServer::start({.address = "127.0.0.1", .port = port()}, echo);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message,
            "cannot serve on 127.0.0.1:" + std::to_string(port()) + ": Address already in use");
}

TEST_F(HttpServerTest, CaseD2AddressesThatCannotBeServed) {
  const auto message = [](const std::string& address) {
    const auto server = HttpServer::start({.address = address, .port = 0}, echo);
    return server.ok() ? std::string("served") : server.error().message;
  };
  EXPECT_EQ(message("192.0.2.1"), "cannot serve on 192.0.2.1:0: Cannot assign requested address");
  for (const char* address : {"", "localhost", "node.example", "9400", "127.0.0.1:9400",
                              "0.0.0.0,[::]", "127.0.0.1s", "+8080", "[::1]"}) {
    EXPECT_NE(message(address).find("not an IPv4 or IPv6 address"), std::string::npos) << address;
  }
}

TEST_F(HttpServerTest, TheNextPortIsTakenWhereMoreThanOneMayBeTried) {
  const auto next =
      HttpServer::start({.address = "127.0.0.1", .port = port(), .port_count = 16}, echo);
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_GT(next.value()->port(), port());
  EXPECT_LT(next.value()->port(), port() + 16);
  EXPECT_EQ(fetch(next.value()->port(), "/x").status, 200);
  // And it is free again afterwards.
  const std::uint16_t freed = next.value()->port();
  next.value()->stop();
  EXPECT_EQ(probe_port(*parse_address("127.0.0.1", freed)), 0);
}

TEST(HttpServerAddressTest, WhereThereIsNoIPv6ThatIsSaid) {
  const auto server = HttpServer::start({.address = "::1", .port = 0}, echo);
  // Some CivetWebs have it, and not every machine has the address.
  if (server.ok()) return;
  const std::string& message = server.error().message;
  EXPECT_EQ(message.find("invalid port"), std::string::npos) << message;
  EXPECT_NE(message.find("cannot serve on [::1]"), std::string::npos) << message;
}

// Forks.

/// The exit status of `child`, -1 where it did not end in time.
int wait_for(pid_t child, std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return -1;
    }
    usleep(2'000);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

TEST_F(HttpServerTest, AForkedChildHasNoListeningSocket) {
  const SocketAddress address = *parse_address("127.0.0.1", port());
  ASSERT_EQ(find_sockets(address, SocketKind::listening).size(), 1u);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(find_sockets(address, SocketKind::listening).empty() ? 0 : 1);
  EXPECT_EQ(wait_for(child, std::chrono::seconds(5)), 0);
  EXPECT_EQ(fetch(port(), "/x").status, 200);
}

TEST_F(HttpServerTest, ExitInAForkedChildIsQuick) {
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    shared().server->stop();  // must do nothing
    // As many services have it: destroyed by exit().
    static const std::unique_ptr<HttpServer> owner = std::move(shared().server);
    std::exit(42);
  }
  EXPECT_EQ(wait_for(child, std::chrono::seconds(5)), 42);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1500));
  EXPECT_EQ(fetch(port(), "/x").status, 200);
}

TEST_F(HttpServerTest, ThePortOfADeadParentCanBeBoundWhileItsChildLives) {
  int to_test[2];
  ASSERT_EQ(pipe(to_test), 0);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    auto server = HttpServer::start({.address = "127.0.0.1", .port = 0}, echo);
    if (!server.ok()) _exit(1);
    const pid_t orphan = fork();
    if (orphan == 0) {
      alarm(20);  // ends by itself should this test not end it
      // Told by the child, whose part of the fork is over then.
      struct {
        std::uint16_t port;
        pid_t orphan;
      } news{server.value()->port(), getpid()};
      if (write(to_test[1], &news, sizeof(news)) != sizeof(news)) _exit(1);
      for (;;) pause();
    }
    _exit(orphan > 0 ? 0 : 1);
  }
  ASSERT_EQ(wait_for(parent, std::chrono::seconds(10)), 0);
  struct {
    std::uint16_t port;
    pid_t orphan;
  } news{};
  ASSERT_EQ(read(to_test[0], &news, sizeof(news)), static_cast<ssize_t>(sizeof(news)));
  EXPECT_EQ(kill(news.orphan, 0), 0);
  EXPECT_EQ(probe_port(*parse_address("127.0.0.1", news.port)), 0);
  kill(news.orphan, SIGKILL);
  close(to_test[0]);
  close(to_test[1]);
}

}  // namespace
}  // namespace gpupool::internal
