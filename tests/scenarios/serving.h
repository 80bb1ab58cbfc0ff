// A serving process as a pool sees it: weights, and requests whose key-value cache grows block by
// block while they are answered, then goes at once.
//
// Thread safety: none. Cost: a step is half a second of virtual time, and some tens of requests.
#ifndef GPUPOOL_TESTS_SCENARIOS_SERVING_H_
#define GPUPOOL_TESTS_SCENARIOS_SERVING_H_

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

#include "tests/scenarios/run.h"

namespace gpupool::test {

struct ServingShape {
  std::uint64_t weights_bytes = gib(26);
  std::uint64_t block_bytes = mib(16);  // of key-value cache
  double mean_blocks = 24;              // of an answer, when it is complete
  double blocks_per_second = 1.5;       // at which one grows
  double requests_per_second = 2;
  /// Of key-value cache; requests beyond this are put off, as servers do.
  std::uint64_t cache_limit_bytes = gib(40);
};

ServingShape draw_serving(Run& run);

class Serving {
 public:
  Serving(Run& run, Process& process, const ServingShape& shape);

  /// Serves for `seconds`; `load` times the shape's requests, `length` times its lengths.
  void serve(double seconds, const std::function<double()>& load = {},
             const std::function<double()>& length = {});
  /// Answers what it has, and takes nothing new.
  void drain();
  std::uint64_t cache_bytes() const { return cache_blocks_ * shape_.block_bytes; }
  const ServingShape& shape() const { return shape_; }

 private:
  struct Request {
    std::vector<void*> blocks;
    double wanted = 0;  // blocks
    double due = 0;     // by now
  };

  void step(double load, double length);
  void admit(double load, double length);

  Run& run_;
  Process& process_;
  ServingShape shape_;
  std::vector<void*> weights_;
  std::list<Request> requests_;
  double arrivals_ = 0;
  std::uint64_t cache_blocks_ = 0;
};

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SCENARIOS_SERVING_H_
