// NCCL's communicators of all devices in one process, and collectives on them as one group each.
//
// Thread safety: one thread. A launch returns at once; what it launched is work of the streams.
#ifndef GPUPOOL_TESTS_GPU_PEERS_COMMUNICATORS_H_
#define GPUPOOL_TESTS_GPU_PEERS_COMMUNICATORS_H_

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/gpu/peers/fleet.h"

namespace gpupool::gpu_tests {

/// What one rank gives and gets.
struct RankBuffers {
  cudaStream_t stream = nullptr;
  void* sent = nullptr;
  void* received = nullptr;  // a sum
  void* gathered = nullptr;  // of all ranks, one behind the other
};

enum class Operation : std::uint8_t { all_reduce, all_gather };
const char* to_string(Operation operation);

class Communicators {
 public:
  explicit Communicators(const Cards& cards);
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  std::size_t count() const { return communicators_.size(); }
  /// Launches it on every device. `bytes` is what each rank gives.
  void launch(Operation operation, const std::vector<RankBuffers>& ranks, std::uint64_t bytes,
              Watch& watch);

 private:
  friend class Registration;
  std::vector<ncclComm_t> communicators_;
  std::vector<int> devices_;
};

/// The buffers of every rank are registered with its communicator in this scope. Ends before they
/// are freed, once no collective uses them.
class Registration {
 public:
  Registration(Communicators& communicators, const std::vector<RankBuffers>& ranks,
               std::uint64_t bytes);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  struct Handle {
    std::size_t rank = 0;
    void* value = nullptr;
  };
  Communicators& communicators_;
  std::vector<Handle> handles_;
};

void must(ncclResult_t result, const char* what);

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_PEERS_COMMUNICATORS_H_
