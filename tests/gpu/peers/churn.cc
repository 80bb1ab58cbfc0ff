#include "tests/gpu/peers/churn.h"

#include <exception>
#include <string>

namespace gpupool::gpu_tests {
namespace {

constexpr std::size_t kMostLive = 24;
constexpr std::uint64_t kContiguousOneIn = 64;
constexpr std::uint64_t kMostContiguousBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kOperationsPerWait = 64;
constexpr std::size_t kCounter = 1;

std::size_t random_size(std::mt19937_64& random) {
  // Uniform in the logarithm, from 4 KiB to 32 MiB.
  const std::size_t power = std::size_t{1} << (12 + random() % 13);
  return power + random() % power;
}

}  // namespace

Churn::Churn(Fleet& fleet) : fleet_(fleet) {
  for (std::size_t card = 0; card < fleet.count(); ++card) {
    for (std::size_t i = 0; i < kThreadsPerCard; ++i) {
      threads_.emplace_back([this, card, i] {
        try {
          run(card, i);
        } catch (const std::exception& error) {
          fleet_.report().fault("a thread beside device " + std::to_string(card), error.what());
        }
      });
    }
  }
}

Churn::~Churn() {
  is_ending_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void Churn::run(std::size_t card, std::size_t number) {
  must(cudaSetDevice(fleet_.away_from(card, number)), "cudaSetDevice");
  PoolStream stream(fleet_, card);
  std::mt19937_64 random(card * 16 + number + 1);
  std::vector<Pattern> live;
  for (std::uint64_t i = 1; !is_ending_.load(); ++i) {
    if (live.size() < 4 || (live.size() < kMostLive && random() % 2 == 0)) {
      hold(stream, live, random);
    } else {
      release(stream, live, random() % live.size());
    }
    // So that work gets done, and pages become empty.
    if (i % kOperationsPerWait == 0) stream.synchronize();
  }
  while (!live.empty()) release(stream, live, live.size() - 1);
}

void Churn::hold(PoolStream& stream, std::vector<Pattern>& live, std::mt19937_64& random) {
  Pattern pattern;
  pattern.bytes = random_size(random);
  pattern.seed = seed_of(random());
  const bool is_contiguous =
      random() % kContiguousOneIn == 0 && pattern.bytes <= kMostContiguousBytes;
  void* const block = stream.find_block(
      pattern.bytes, is_contiguous ? AllocationClass::contiguous : AllocationClass::normal);
  if (block == nullptr) {
    // The others have it all, or nearly.
    if (!live.empty()) release(stream, live, random() % live.size());
    stream.synchronize();
    return;
  }
  ++allocations_;
  pattern.address = reinterpret_cast<DeviceAddress>(block);
  live.push_back(pattern);
  const OnDevice on(stream.device());
  must(stream.kernels().fill(stream.raw(), pattern), "filling a block");
}

void Churn::release(PoolStream& stream, std::vector<Pattern>& live, std::size_t index) {
  const Pattern pattern = live[index];
  live[index] = live.back();
  live.pop_back();
  {
    const OnDevice on(stream.device());
    must(stream.kernels().check(stream.raw(), pattern, kCounter), "checking a block");
  }
  stream.free_block(reinterpret_cast<void*>(pattern.address));
}

}  // namespace gpupool::gpu_tests
