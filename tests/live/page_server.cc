// Serves real pools on simulated devices, and does with them what it is told, a line at a time:
// what the tests of the live page, and its pictures, make their states with.
//
//   pool NAME DEVICE BYTES [KEY=VALUE ...]   a pool, which is used from then on; serve shows all
//   serve [PORT]                             answers "port N"; without one it is free, or as before
//   allocate ID BYTES [TAG [STREAM]]         answers ok, or error with the failure's headline
//   ...                                      see kCommands
//
// Each line is answered by one, "ok ..." or "error ...". Time is the machine's, and can be moved
// on: `advance` makes a past of so many seconds in an instant. Ends with its standard input.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "exporter/discovery/port_plan.h"
#include "exporter/http/access.h"
#include "exporter/http/endpoints.h"
#include "exporter/http/pool_sources.h"
#include "exporter/metrics/history.h"
#include "gpupool/simulated_backend.h"

namespace gpupool::internal {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::chrono::milliseconds kTick{250};

/// The machine's clock, from which the past can be told apart by as much as one likes.
class ShiftedClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override {
    return is_still_ ? still_ns_ + shift_ns_ : steady_clock().now_ns() + shift_ns_;
  }
  void advance_ns(std::uint64_t delta_ns) noexcept { shift_ns_ += delta_ns; }
  /// From now on time moves by advance_ns() alone.
  void hold() noexcept {
    still_ns_ = steady_clock().now_ns();
    is_still_ = true;
  }

 private:
  std::atomic<std::uint64_t> shift_ns_{0};
  std::atomic<std::uint64_t> still_ns_{0};
  std::atomic<bool> is_still_{false};
};

struct Block {
  void* pointer = nullptr;
  StreamRef stream;
};

struct Served {
  std::unique_ptr<SimulatedBackend> device;
  std::unique_ptr<EventLog> events;
  std::unique_ptr<History> history;
  std::unique_ptr<Pool> pool;
  std::shared_ptr<Sources> sources;
  std::map<std::size_t, RawStream> raw_streams;
  std::map<std::size_t, StreamRef> streams;
  std::multimap<std::string, Block> blocks;
  std::uint64_t seed = 1;
};

using Words = std::vector<std::string>;

/// A word of a line, by its place or by its key.
struct Arguments {
  Words words;

  std::string text(std::size_t at, const std::string& otherwise = "") const {
    return at < words.size() ? words[at] : otherwise;
  }
  std::uint64_t number(std::size_t at, std::uint64_t otherwise = 0) const {
    return at < words.size() ? std::stoull(words[at]) : otherwise;
  }
  std::string option(const std::string& key, const std::string& otherwise) const {
    for (const std::string& word : words) {
      if (word.starts_with(key + "=")) return word.substr(key.size() + 1);
    }
    return otherwise;
  }
};

class PageServer {
 public:
  ~PageServer() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    ended_.notify_all();
    if (ticker_.joinable()) ticker_.join();
    if (server_ != nullptr) server_->stop();
    for (auto& served : pools_) {
      served->device->complete_all();
      for (auto& [id, block] : served->blocks)
        served->pool->deallocate(block.pointer, block.stream);
    }
  }

  std::string obey(const std::string& line) {
    std::istringstream in(line);
    Arguments arguments;
    for (std::string word; in >> word;) arguments.words.push_back(word);
    if (arguments.words.empty()) return "error an empty line";
    const auto command = kCommands.find(arguments.words[0]);
    if (command == kCommands.end()) return "error unknown command " + arguments.words[0];
    const std::lock_guard lock(mutex_);
    return (this->*command->second)(arguments);
  }

 private:
  using Command = std::string (PageServer::*)(const Arguments&);
  static const std::map<std::string, Command> kCommands;

  std::string add_pool(const Arguments& arguments);
  std::string use(const Arguments& arguments);
  std::string serve(const Arguments& arguments);
  std::string stop(const Arguments& arguments);
  std::string allocate(const Arguments& arguments);
  std::string fill(const Arguments& arguments);
  std::string release(const Arguments& arguments);
  std::string release_every(const Arguments& arguments);
  std::string churn(const Arguments& arguments);
  std::string contiguous(const Arguments& arguments);
  std::string busy(const Arguments& arguments);
  std::string complete(const Arguments& arguments);
  std::string advance(const Arguments& arguments);
  std::string hold(const Arguments& arguments);
  std::string maintain(const Arguments& arguments);
  std::string trim(const Arguments& arguments);
  std::string require(const Arguments& arguments);
  std::string stats(const Arguments& arguments);

  Served& current() { return *pools_.at(current_); }
  StreamRef stream(std::size_t number);
  std::string take(const std::string& id, std::uint64_t bytes, const std::string& tag,
                   std::size_t stream_number);
  void sample(Served& served) {
    served.pool->maintain();
    if (served.history != nullptr) served.history->add(served.pool->stats());
  }
  void tick();

  ShiftedClock clock_;
  std::vector<std::unique_ptr<Served>> pools_;
  std::size_t current_ = 0;
  std::unique_ptr<Endpoints> endpoints_;
  std::unique_ptr<HttpServer> server_;
  std::uint16_t port_ = 0;
  std::mutex mutex_;  // guards the pools but for what the server reads of them
  std::condition_variable ended_;
  bool is_ending_ = false;
  std::thread ticker_;
};

const std::map<std::string, PageServer::Command> PageServer::kCommands = {
    {"pool", &PageServer::add_pool},
    {"use", &PageServer::use},  // NUMBER: of the pools, from 0
    {"serve", &PageServer::serve},
    {"stop", &PageServer::stop},  // answers nobody; serve takes the same port again
    {"allocate", &PageServer::allocate},
    {"fill", &PageServer::fill},                 // ID COUNT BYTES [TAG [STREAM]]
    {"free", &PageServer::release},              // ID: all blocks of that name
    {"free_every", &PageServer::release_every},  // ID STEP: of those every STEP-th
    {"churn", &PageServer::churn},            // COUNT: requests of training-like sizes, each freed
    {"contiguous", &PageServer::contiguous},  // ID BYTES: a block of its own
    {"busy", &PageServer::busy},              // STREAM: its work ends with complete
    {"complete", &PageServer::complete},
    {"advance", &PageServer::advance},  // SECONDS [COUNT-OF-CHURN a second]
    {"hold", &PageServer::hold},        // time stands still
    {"maintain", &PageServer::maintain},
    {"trim", &PageServer::trim},        // BYTES
    {"require", &PageServer::require},  // BYTES
    {"stats", &PageServer::stats},
};

std::string PageServer::add_pool(const Arguments& arguments) {
  auto served = std::make_unique<Served>();
  const std::uint64_t bytes = arguments.number(3);
  served->device = std::make_unique<SimulatedBackend>(SimulatedDeviceOptions{
      .capacity_bytes =
          std::max<std::uint64_t>(bytes, std::stoull(arguments.option("device_bytes", "0"))),
      .ordinal = static_cast<int>(arguments.number(2))});
  PoolOptions options;
  options.name = arguments.text(1);
  options.capacity = bytes;
  options.clock = &clock_;
  options.runtime.recycling =
      arguments.option("recycling", "eager") == "off" ? Recycling::off : Recycling::eager;
  options.runtime.thresholds.required_block_bytes = std::stoull(arguments.option("required", "0"));
  options.runtime.out_of_memory.wait_ns = 0;
  options.watched_sizes = {std::stoull(arguments.option("watched", "1073741824"))};
  if (arguments.option("events", "yes") == "yes") {
    served->events = std::make_unique<EventLog>();
    options.observer = served->events.get();
  }
  if (arguments.option("history", "yes") == "yes") served->history = std::make_unique<History>();
  auto pool = Pool::create(*served->device, options);
  if (!pool.ok()) return "error " + pool.error().message;
  served->pool = std::move(pool).value();
  served->sources = std::make_shared<Sources>(pool_sources(
      *served->pool, job_identity(), true, served->history.get(), served->events.get()));
  pools_.push_back(std::move(served));
  current_ = pools_.size() - 1;
  return "ok";
}

std::string PageServer::use(const Arguments& arguments) {
  if (arguments.number(1) >= pools_.size()) return "error there is no such pool";
  current_ = arguments.number(1);
  return "ok";
}

std::string PageServer::serve(const Arguments& arguments) {
  if (endpoints_ == nullptr) {
    std::vector<Pool*> pointers;
    for (const auto& served : pools_) pointers.push_back(served->pool.get());
    const auto find = [this](const PoolChoice& choice) -> std::shared_ptr<const Sources> {
      for (const auto& served : pools_) {
        const auto device = static_cast<std::uint64_t>(served->pool->device().ordinal);
        if (choice.name.value_or(served->pool->name()) == served->pool->name() &&
            choice.device.value_or(device) == device) {
          return served->sources;
        }
      }
      return nullptr;
    };
    endpoints_ = std::make_unique<Endpoints>(
        PoolDirectory{
            .collect = [pointers] { return collect_pools(pointers, job_identity(), true); },
            .find = find,
            .list_json = [pointers] { return pools_json(pointers); }},
        Access::create({}).value());
    endpoints_->set_ready(true);
    ticker_ = std::thread([this] { tick(); });
  }
  port_ = static_cast<std::uint16_t>(arguments.number(1, port_));
  auto server = listen({.listen = {.port = port_}, .tries_any = false},
                       [this](const HttpRequest& request) { return endpoints_->handle(request); });
  if (!server.ok()) return "error " + server.error().message;
  server_ = std::move(server).value();
  port_ = server_->port();
  return "ok " + std::to_string(port_);
}

std::string PageServer::stop(const Arguments&) {
  if (server_ != nullptr) server_->stop();
  server_.reset();
  return "ok";
}

StreamRef PageServer::stream(std::size_t number) {
  Served& served = current();
  const auto known = served.streams.find(number);
  if (known != served.streams.end()) return known->second;
  served.raw_streams[number] = served.device->create_stream();
  return served.streams[number] = served.pool->adopt_stream(served.raw_streams[number]).value();
}

std::string PageServer::take(const std::string& id, std::uint64_t bytes, const std::string& tag,
                             std::size_t stream_number) {
  Served& served = current();
  AllocationRequest request;
  request.bytes = bytes;
  if (!tag.empty() && tag != "-") {
    const auto found = served.pool->find_tag(tag);
    if (!found.ok()) return "error unknown tag " + tag;
    request.tag = found.value();
  }
  const StreamRef on = stream(stream_number);
  const auto block = served.pool->allocate(request, on);
  if (!block.ok()) return "error " + served.pool->last_failure().headline();
  served.blocks.emplace(id, Block{block.value(), on});
  return "ok";
}

std::string PageServer::allocate(const Arguments& arguments) {
  return take(arguments.text(1), arguments.number(2), arguments.text(3), arguments.number(4, 1));
}

std::string PageServer::fill(const Arguments& arguments) {
  const std::uint64_t count = arguments.number(2);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string result =
        take(arguments.text(1), arguments.number(3), arguments.text(4), arguments.number(5, 1));
    if (result != "ok") return result;
  }
  return "ok";
}

std::string PageServer::release(const Arguments& arguments) {
  Served& served = current();
  const auto [first, last] = served.blocks.equal_range(arguments.text(1));
  for (auto block = first; block != last; ++block) {
    served.pool->deallocate(block->second.pointer, block->second.stream);
  }
  served.blocks.erase(first, last);
  served.pool->drain_caches();
  return "ok";
}

std::string PageServer::release_every(const Arguments& arguments) {
  Served& served = current();
  const std::uint64_t step = std::max<std::uint64_t>(1, arguments.number(2, 2));
  std::uint64_t number = 0;
  auto [block, last] = served.blocks.equal_range(arguments.text(1));
  while (block != last) {
    if (number++ % step == 0) {
      served.pool->deallocate(block->second.pointer, block->second.stream);
      block = served.blocks.erase(block);
    } else {
      ++block;
    }
  }
  served.pool->drain_caches();
  return "ok";
}

std::string PageServer::churn(const Arguments& arguments) {
  Served& served = current();
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < arguments.number(1); ++i) {
    // Sizes of 1 KiB to 8 MiB, most of them small, as layers have them.
    served.seed = served.seed * 6364136223846793005U + 1442695040888963407U;
    const unsigned log2 = 10 + static_cast<unsigned>((served.seed >> 33) % 14);
    const std::uint64_t bytes = (std::uint64_t{1} << log2) + (served.seed >> 40) % 4096;
    const StreamRef on = stream(1 + (served.seed >> 50) % 2);
    const auto block = served.pool->allocate(bytes, on);
    if (block.ok()) held.push_back({block.value(), on});
    if (held.size() < 24) continue;
    const std::size_t at = (served.seed >> 36) % held.size();
    served.pool->deallocate(held[at].pointer, held[at].stream);
    held[at] = held.back();
    held.pop_back();
  }
  for (const Block& block : held) served.pool->deallocate(block.pointer, block.stream);
  return "ok";
}

std::string PageServer::contiguous(const Arguments& arguments) {
  Served& served = current();
  AllocationRequest request;
  request.bytes = arguments.number(2);
  request.allocation_class = AllocationClass::contiguous;
  const auto block = served.pool->allocate(request, stream(1));
  if (!block.ok()) return "error " + served.pool->last_failure().headline();
  served.blocks.emplace(arguments.text(1), Block{block.value(), stream(1)});
  return "ok";
}

std::string PageServer::busy(const Arguments& arguments) {
  static_cast<void>(stream(arguments.number(1, 1)));
  const auto given = current().device->launch(current().raw_streams[arguments.number(1, 1)],
                                              {.until_completed = true});
  return given.ok() ? "ok" : "error the device refuses it";
}

std::string PageServer::complete(const Arguments&) {
  current().device->complete_all();
  current().pool->maintain();
  return "ok";
}

std::string PageServer::advance(const Arguments& arguments) {
  for (std::uint64_t second = 0; second < arguments.number(1); ++second) {
    if (arguments.number(2) > 0) churn({{"churn", arguments.text(2)}});
    clock_.advance_ns(kSecondNs);
    for (const auto& served : pools_) sample(*served);
  }
  return "ok";
}

std::string PageServer::hold(const Arguments&) {
  clock_.hold();
  return "ok";
}

std::string PageServer::maintain(const Arguments&) {
  sample(current());
  return "ok";
}

std::string PageServer::trim(const Arguments& arguments) {
  return "ok " + std::to_string(current().pool->trim(arguments.number(1)));
}

std::string PageServer::require(const Arguments& arguments) {
  RuntimeOptions options = current().pool->runtime_options();
  options.thresholds.required_block_bytes = arguments.number(1);
  const auto changed = current().pool->reconfigure(options);
  return changed.ok() ? "ok" : "error " + changed.error().message;
}

std::string PageServer::stats(const Arguments&) {
  std::string json = current().sources->stats_json();
  json.pop_back();
  return "ok " + json;
}

void PageServer::tick() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kTick, [this] { return is_ending_; })) {
    for (const auto& served : pools_) sample(*served);
  }
}

}  // namespace
}  // namespace gpupool::internal

int main() {
  gpupool::internal::PageServer server;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "quit") break;
    std::cout << server.obey(line) << std::endl;
  }
  return 0;
}
