#include "tests/gpu/peers/communicators.h"

#include <cstdlib>

#include "tests/gpu/peers/collectives.h"

namespace gpupool::gpu_tests {

void must(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  throw Broken(std::string(what) + ": " + ncclGetErrorString(result) + ": " +
               ncclGetLastError(nullptr));
}

const char* to_string(Operation operation) {
  return operation == Operation::all_reduce ? "all-reduce" : "all-gather";
}

std::string missing_nccl() { return {}; }

std::string open_nccl() {
  // Multicast over NVLink needs a service of the host that machines which are shared may lack, and
  // has nothing to do with whose memory it is.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  int version = 0;
  must(ncclGetVersion(&version), "ncclGetVersion");
  return "NCCL " + std::to_string(version / 10'000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100) + ", NCCL_NVLS_ENABLE=" + getenv("NCCL_NVLS_ENABLE");
}

std::shared_ptr<Communicators> open_communicators(const Cards& cards) {
  return std::make_shared<Communicators>(cards);
}

Communicators::Communicators(const Cards& cards) : communicators_(cards.size()) {
  for (const Card& card : cards) devices_.push_back(card.device);
  must(ncclCommInitAll(communicators_.data(), static_cast<int>(devices_.size()), devices_.data()),
       "ncclCommInitAll");
}

Communicators::~Communicators() {
  // At the end, with no collective under way; nothing could be done about an error.
  for (std::size_t rank = 0; rank < count(); ++rank) {
    const OnDevice on(devices_[rank]);
    static_cast<void>(ncclCommDestroy(communicators_[rank]));
  }
}

void Communicators::launch(Operation operation, const std::vector<RankBuffers>& ranks,
                           std::uint64_t bytes, Watch& watch) {
  const std::uint64_t words = bytes / sizeof(std::uint32_t);
  const auto lock = watch.launching();
  must(ncclGroupStart(), "ncclGroupStart");
  for (std::size_t rank = 0; rank < count(); ++rank) {
    const RankBuffers& own = ranks[rank];
    const ncclResult_t launched = operation == Operation::all_reduce
                                      ? ncclAllReduce(own.sent, own.received, words, ncclUint32,
                                                      ncclSum, communicators_[rank], own.stream)
                                      : ncclAllGather(own.sent, own.gathered, words, ncclUint32,
                                                      communicators_[rank], own.stream);
    must(launched, to_string(operation));
  }
  must(ncclGroupEnd(), "ncclGroupEnd");
}

Registration::Registration(Communicators& communicators, const std::vector<RankBuffers>& ranks,
                           std::uint64_t bytes)
    : communicators_(communicators) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const OnDevice on(communicators_.devices_[rank]);
    const auto add = [&](void* buffer, std::uint64_t size) {
      void* value = nullptr;
      must(ncclCommRegister(communicators_.communicators_[rank], buffer, size, &value),
           "ncclCommRegister");
      handles_.push_back({rank, value});
    };
    add(ranks[rank].sent, bytes);
    add(ranks[rank].received, bytes);
    add(ranks[rank].gathered, bytes * ranks.size());
  }
}

Registration::~Registration() {
  for (const Handle& handle : handles_) {
    const OnDevice on(communicators_.devices_[handle.rank]);
    // What is still registered shows in the next collective on other memory of these addresses.
    static_cast<void>(ncclCommDeregister(communicators_.communicators_[handle.rank], handle.value));
  }
}

}  // namespace gpupool::gpu_tests
