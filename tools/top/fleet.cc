#include "tools/top/fleet.h"

#include <algorithm>
#include <utility>

namespace gpupool::tools {
namespace {

/// The coarse history has a row each 15 s: more often there is nothing new.
constexpr std::chrono::seconds kHistoryPeriod{15};

Rank silent(std::string where, std::string why) {
  Rank rank;
  rank.where = std::move(where);
  rank.health = Health::no_answer;
  rank.reason = std::move(why);
  return rank;
}

std::uint64_t unix_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace

std::vector<Fleet::Place> Fleet::find_places(std::vector<Rank>& ranks) {
  std::vector<std::string> urls;
  for (const Address& address : addresses_) urls.push_back(address.base + "/api/v1/pools");
  const std::vector<Answer> answers = fetcher_.get(urls);
  std::vector<Place> places;
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    const Address& address = addresses_[i];
    if (!answers[i].error.empty()) {
      ranks.push_back(silent(address.name, answers[i].error));
      continue;
    }
    const auto pools = read_pools(answers[i].body);
    if (!pools.ok()) {
      ranks.push_back(silent(address.name, pools.error()));
      continue;
    }
    for (const PoolName& pool : pools.value()) {
      const bool is_only = pools.value().size() == 1;
      const std::string device = std::to_string(pool.device);
      places.push_back({address.base + "/api/v1/", "pool=" + pool.name + "&device=" + device,
                        is_only ? address.name : address.name + "/" + pool.name + "/" + device});
    }
  }
  return places;
}

void Fleet::remember(Rank& rank, const std::string* history) {
  Memory& memory = memories_[rank.where];
  // A process that started again counts from nothing.
  if (memory.time_ns != 0 && rank.time_ns > memory.time_ns && rank.requests >= memory.requests) {
    rank.requests_per_s = static_cast<double>(rank.requests - memory.requests) /
                          (static_cast<double>(rank.time_ns - memory.time_ns) / 1e9);
  }
  memory.requests = rank.requests;
  memory.time_ns = rank.time_ns;
  if (history != nullptr) memory.full_in_s = full_in_seconds(*history);
  rank.full_in_s = memory.full_in_s;
}

std::vector<Rank> Fleet::look() {
  std::vector<Rank> ranks;
  const std::vector<Place> places = find_places(ranks);
  const auto now = std::chrono::steady_clock::now();
  const bool with_history = !history_read_ || now - *history_read_ >= kHistoryPeriod;
  if (with_history) history_read_ = now;
  const std::size_t each = with_history ? 3 : 2;
  std::vector<std::string> urls;
  for (const Place& place : places) {
    urls.push_back(place.base + "stats?" + place.query);
    urls.push_back(place.base + "last_failure?" + place.query);
    if (!with_history) continue;
    urls.push_back(place.base + "history?" + place.query +
                   "&resolution=15s&since=" + std::to_string(unix_ms() - kTrendMs));
  }
  const std::vector<Answer> answers = fetcher_.get(urls);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Answer* const of_pool = &answers[i * each];
    const auto failed = std::find_if(of_pool, of_pool + 2,
                                     [](const Answer& answer) { return !answer.error.empty(); });
    if (failed != of_pool + 2) {
      ranks.push_back(silent(places[i].where, failed->error));
      continue;
    }
    auto rank = read_rank(of_pool[0].body, of_pool[1].body);
    if (!rank.ok()) {
      ranks.push_back(silent(places[i].where, rank.error()));
      continue;
    }
    rank.value().where = places[i].where;
    remember(rank.value(), with_history ? &of_pool[2].body : nullptr);
    ranks.push_back(std::move(rank).value());
  }
  std::stable_sort(ranks.begin(), ranks.end(), fails_before);
  return ranks;
}

}  // namespace gpupool::tools
