// All pools of the exporters that `gpupool top` watches.
//
// Thread safety: one thread. Cost: two rounds of Fetcher, and a third of them at times.
#ifndef GPUPOOL_TOOLS_TOP_FLEET_H_
#define GPUPOOL_TOOLS_TOP_FLEET_H_

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/top/address.h"
#include "tools/top/fetch.h"
#include "tools/top/rank.h"

namespace gpupool::tools {

class Fleet {
 public:
  explicit Fleet(std::vector<Address> addresses) : addresses_(std::move(addresses)) {}

  /// Asked now; who fails first stands first.
  std::vector<Rank> look();

 private:
  /// What is remembered of a pool from look to look.
  struct Memory {
    std::uint64_t requests = 0;
    std::uint64_t time_ns = 0;
    std::optional<double> full_in_s;
  };
  struct Place {
    std::string base;   // with the API's path, ends in "/"
    std::string query;  // names the pool
    std::string where;
  };

  std::vector<Place> find_places(std::vector<Rank>& ranks);
  void remember(Rank& rank, const std::string* history);

  std::vector<Address> addresses_;
  Fetcher fetcher_;
  std::map<std::string, Memory> memories_;
  std::optional<std::chrono::steady_clock::time_point> history_read_;
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TOP_FLEET_H_
