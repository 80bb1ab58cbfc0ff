#include "exporter/http/http_server.h"

#include <civetweb.h>
#include <signal.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "exporter/http/fork_guard.h"
#include "exporter/http/signal_shield.h"
#include "exporter/http/socket_address.h"

namespace gpupool::internal {
namespace {

constexpr int kWorkers = 32;
// Connections that no worker has yet: a few are taken over, the others wait in the kernel, where
// they cost the host no descriptor, of which it may have no more than 1024.
constexpr const char* kQueue = "64";
constexpr const char* kBacklog = "1024";
// What the kernel may not take over at once, so that a client that does not read holds a worker
// for up to 1.5 s: 0.5 s of writing, 1 s of CivetWeb's closing.
constexpr std::size_t kLargeAnswerBytes = std::size_t{64} << 10;
constexpr int kMaxLargeAnswers = 8;  // at a time; the other workers are there for scrapes
constexpr std::chrono::seconds kThreadStartTimeout{2};

/// The header's values, joined; nothing where it was not sent.
std::optional<std::string> find_header(const mg_request_info& info, const char* name) {
  std::optional<std::string> joined;
  for (int i = 0; i < info.num_headers; ++i) {
    const mg_header& header = info.http_headers[i];
    if (strcasecmp(header.name, name) != 0) continue;
    joined = joined ? *joined + ", " + header.value : header.value;
  }
  return joined;
}

std::ptrdiff_t count_headers(const mg_request_info& info, const char* name) {
  return std::count_if(
      info.http_headers, info.http_headers + info.num_headers,
      [name](const mg_header& header) { return strcasecmp(header.name, name) == 0; });
}

HttpRequest read_request(const mg_connection* connection) {
  HttpRequest request;
  const mg_request_info* const info = mg_get_request_info(connection);
  if (info->request_method != nullptr) request.method = info->request_method;
  // As it was sent: a path that has to be cleaned first is none of ours.
  if (info->local_uri_raw != nullptr) request.path = info->local_uri_raw;
  if (info->query_string != nullptr) request.query = info->query_string;
  request.host = find_header(*info, "Host");
  request.has_several_hosts = count_headers(*info, "Host") > 1;
  request.accept = find_header(*info, "Accept").value_or("");
  request.accept_encoding = find_header(*info, "Accept-Encoding").value_or("");
  request.if_none_match = find_header(*info, "If-None-Match").value_or("");
  request.authorization = find_header(*info, "Authorization");
  request.client = info->remote_addr;
  return request;
}

/// The text without what would break a log's line.
std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c >= 0 && c < ' '; }, '?');
  return text;
}

std::string head_of(const HttpResponse& response) {
  std::string text =
      "HTTP/1.1 " + std::to_string(response.status) + " " + reason_phrase(response.status) + "\r\n";
  if (response.status != kNotModified) {  // which has no body, and so neither of these
    text += "Content-Type: " + response.content_type + "\r\n";
    text += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  }
  text += "Connection: close\r\n";
  for (const auto& [name, value] : response.headers) text += name + ": " + value + "\r\n";
  return text + "\r\n";
}

void write(mg_connection* connection, const HttpResponse& response, bool with_body) {
  std::string text = head_of(response);
  if (!with_body) {
    mg_write(connection, text.data(), text.size());
  } else if (response.body.size() <= kLargeAnswerBytes) {
    text += response.body;  // one packet, where one is enough
    mg_write(connection, text.data(), text.size());
  } else {
    mg_write(connection, text.data(), text.size());
    mg_write(connection, response.body.data(), response.body.size());
  }
}

/// A place among the large answers under way, if there was one.
class LargeAnswer {
 public:
  explicit LargeAnswer(std::atomic<int>& under_way) : under_way_(under_way) {
    has_place_ = under_way_.fetch_add(1) < kMaxLargeAnswers;
  }
  ~LargeAnswer() { under_way_.fetch_sub(1); }
  LargeAnswer(const LargeAnswer&) = delete;
  LargeAnswer& operator=(const LargeAnswer&) = delete;

  bool has_place() const noexcept { return has_place_; }

 private:
  std::atomic<int>& under_way_;
  bool has_place_ = false;
};

HttpResponse busy() {
  HttpResponse response;
  response.status = 503;
  response.headers.emplace_back("Retry-After", "1");
  response.body = "other large answers are under way, for clients that read slowly\n";
  return response;
}

HttpResponse answer(const HttpHandler& handler, const HttpRequest& request) {
  try {
    return handler(request);
  } catch (const std::exception& error) {
    HttpResponse response;
    response.status = 500;
    response.body = std::string("internal error: ") + error.what() + "\n";
    return response;
  } catch (...) {
    // Whatever it is, it must not go through CivetWeb's C frames.
    HttpResponse response;
    response.status = 500;
    response.body = "internal error\n";
    return response;
  }
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(SocketAddress address, HttpHandler handler)
      : address_(address), handler_(std::move(handler)), owner_(getpid()) {
    sigaction(SIGPIPE, nullptr, &sigpipe_before_);
  }

  /// True where the server runs; else `log_text` has what CivetWeb said.
  bool start(const std::string& endpoint);
  void stop();

  std::uint16_t port() const noexcept { return port_; }
  std::string log_text() const {
    std::lock_guard lock(mutex_);
    return log_text_;
  }

 private:
  static Impl& of(const mg_context* context) {
    return *static_cast<Impl*>(mg_get_user_data(context));
  }
  static void* on_thread_start(const mg_context* context, int thread_type);
  static int on_log(const mg_connection* connection, const char* message);
  static int on_request(mg_connection* connection);
  static int on_own_error(mg_connection* connection, int status, const char* message);
  void wait_for_threads();
  bool learn_port();

  SocketAddress address_;
  const HttpHandler handler_;
  const pid_t owner_;  // a forked child must leave the server alone
  struct sigaction sigpipe_before_ {};
  mg_context* context_ = nullptr;
  std::uint16_t port_ = 0;
  std::optional<ForkGuard> fork_guard_;
  std::atomic<int> large_answers_{0};

  mutable std::mutex mutex_;
  std::condition_variable thread_started_;
  int started_threads_ = 0;
  std::string log_text_;
};

void* HttpServer::Impl::on_thread_start(const mg_context* context, int thread_type) {
  constexpr int kMasterThread = 0;
  constexpr int kWorkerThread = 1;
  Impl& impl = of(context);
  if (thread_type != kMasterThread && thread_type != kWorkerThread) return nullptr;
  std::lock_guard lock(impl.mutex_);
  // CivetWeb has just set it to ignored on this thread; the last thread's restoring is the last
  // word, as each restores after its own setting.
  sigaction(SIGPIPE, &impl.sigpipe_before_, nullptr);
  ++impl.started_threads_;
  impl.thread_started_.notify_one();
  return nullptr;
}

int HttpServer::Impl::on_log(const mg_connection* connection, const char* message) {
  constexpr int kDoNotPrint = 1;
  if (connection == nullptr) return kDoNotPrint;
  const mg_context* const context = mg_get_context(connection);
  if (context == nullptr || mg_get_user_data(context) == nullptr) return kDoNotPrint;
  Impl& impl = of(context);
  std::lock_guard lock(impl.mutex_);
  // Only what is said while starting is of use: afterwards it tells of clients that went away.
  if (impl.log_text_.empty()) impl.log_text_ = message;
  return kDoNotPrint;
}

int HttpServer::Impl::on_request(mg_connection* connection) {
  constexpr int kClosed = 499;
  Impl& impl = of(mg_get_context(connection));
  try {
    const HttpRequest request = read_request(connection);
    HttpResponse response = answer(impl.handler_, request);
    std::optional<LargeAnswer> place;
    if (response.body.size() > kLargeAnswerBytes && request.method != "HEAD") {
      place.emplace(impl.large_answers_);
      if (!place->has_place()) response = busy();
    }
    write(connection, response, request.method != "HEAD");
    return response.status;
  } catch (const std::exception&) {
    // No memory for the answer: the client sees a closed connection, the host goes on.
    return kClosed;
  }
}

/// A request that CivetWeb refuses before our callback sees it. Its own answer would use gmtime(),
/// whose one buffer the host may be using on another thread.
int HttpServer::Impl::on_own_error(mg_connection* connection, int status, const char*) {
  constexpr int kAnswered = 0;
  try {
    HttpResponse response;
    response.status = status;
    response.body = std::string(reason_phrase(status)) + "\n";
    write(connection, response, true);
  } catch (const std::exception&) {
    // No memory for the answer: the client sees a closed connection, the host goes on.
  }
  return kAnswered;
}

bool HttpServer::Impl::start(const std::string& endpoint) {
  const std::string workers = std::to_string(kWorkers);
  std::array<const char*, 17> options = {"listening_ports",
                                         endpoint.c_str(),  //
                                         "num_threads",
                                         workers.c_str(),  //
                                         "request_timeout_ms",
                                         "500",  //
                                         "connection_queue",
                                         kQueue,  //
                                         "listen_backlog",
                                         kBacklog,  //
                                         "decode_url",
                                         "no",  // exact paths only: no other spelling of one
                                         "enable_keep_alive",
                                         "no",  //
                                         "tcp_nodelay",
                                         "1",  //
                                         nullptr};
  mg_callbacks callbacks{};
  callbacks.init_thread = on_thread_start;
  callbacks.log_message = on_log;
  callbacks.begin_request = on_request;
  callbacks.http_error = on_own_error;
  mg_init_data init{};
  init.callbacks = &callbacks;
  init.user_data = this;
  init.configuration_options = options.data();

  const SignalShield shield;
  mg_init_library(0);  // counted; never undone, as another user of the library may be there
  context_ = mg_start2(&init, nullptr);
  if (context_ == nullptr) return false;
  wait_for_threads();
  if (!learn_port()) {
    stop();
    return false;
  }
  fork_guard_.emplace(find_sockets(address_, SocketKind::listening));
  return true;
}

void HttpServer::Impl::wait_for_threads() {
  // Newer versions start workers when they are needed; then this waits in vain, and each restores
  // SIGPIPE whenever it starts.
  std::unique_lock lock(mutex_);
  thread_started_.wait_for(lock, kThreadStartTimeout,
                           [this] { return started_threads_ >= kWorkers + 1; });
}

bool HttpServer::Impl::learn_port() {
  mg_server_port ports[1] = {};
  if (mg_get_server_ports(context_, 1, ports) < 1) return false;
  port_ = static_cast<std::uint16_t>(ports[0].port);
  set_port(address_, port_);
  return true;
}

void HttpServer::Impl::stop() {
  if (context_ == nullptr || getpid() != owner_) return;
  fork_guard_.reset();  // before the numbers of the sockets can be given to other files
  mg_stop(context_);
  context_ = nullptr;
  // Unless another server has the address by now, and these may be its own.
  if (!find_sockets(address_, SocketKind::listening).empty()) return;
  for (const int left : find_sockets(address_, SocketKind::accepted)) close(left);
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() { stop(); }

std::uint16_t HttpServer::port() const noexcept { return impl_->port(); }

void HttpServer::stop() { impl_->stop(); }

Result<std::unique_ptr<HttpServer>, Status> HttpServer::start(const ListenOptions& options,
                                                              const HttpHandler& handler) {
  const int count = options.port == 0 ? 1 : std::max<int>(options.port_count, 1);
  std::string problem;
  for (int i = 0; i < count; ++i) {
    const int number = options.port + (options.first + i) % count;
    if (number > UINT16_MAX) continue;
    const auto port = static_cast<std::uint16_t>(number);
    const auto address = parse_address(options.address, port);
    if (!address) {
      return Status{Error::invalid_argument, "cannot serve on '" + one_line(options.address) +
                                                 "': not an IPv4 or IPv6 address"};
    }
    const std::string endpoint = endpoint_text(options.address, port);
    if (address->storage.ss_family == AF_INET6 && mg_check_feature(MG_FEATURES_IPV6) == 0) {
      return Status{Error::not_supported, "cannot serve on " + endpoint +
                                              ": this CivetWeb was built without IPv6; bind an"
                                              " IPv4 address"};
    }
    if (const int error = probe_port(*address); error != 0) {
      problem = errno_text(error);
      if (error != EADDRINUSE && error != EACCES) break;  // no other port will do better
      continue;
    }
    auto impl = std::make_unique<Impl>(*address, handler);
    if (impl->start(endpoint)) {
      return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
    }
    problem = impl->log_text().empty() ? "the server did not start" : impl->log_text();
  }
  std::string where = endpoint_text(options.address, options.port);
  if (count > 1) where += " nor the " + std::to_string(count - 1) + " ports after it";
  return Status{Error::invalid_argument, "cannot serve on " + where + ": " + problem};
}

}  // namespace gpupool::internal
