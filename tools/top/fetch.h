// Many HTTP GETs at once, by libcurl.
//
// Thread safety: one thread. Cost: kPatience at the most, for all of them in sum.
#ifndef GPUPOOL_TOOLS_TOP_FETCH_H_
#define GPUPOOL_TOOLS_TOP_FETCH_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace gpupool::tools {

struct Answer {
  std::string body;   // of status 200
  std::string error;  // why there is no body; empty where there is one
};

class Fetcher {
 public:
  /// An exporter answers in milliseconds; one that takes longer than this does not answer.
  static constexpr std::chrono::milliseconds kPatience{2000};
  /// What the API answers is far below; more is not read.
  static constexpr std::size_t kMostBytes = std::size_t{8} << 20;

  Fetcher();
  ~Fetcher();
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  /// The answers, in the order of `urls`. Connections are used again from call to call.
  std::vector<Answer> get(const std::vector<std::string>& urls);

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TOP_FETCH_H_
