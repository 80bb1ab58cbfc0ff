// Blocks of two devices' pools, copied and reached from one to the other, while others allocate.
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/peers/churn.h"
#include "tests/gpu/peers/steps.h"

namespace gpupool::gpu_tests {
namespace {

constexpr std::uint64_t kRoundsPerLook = 50;

/// A device that has a block, and one that wants it. With one device, twice that.
struct Pair {
  PoolStream& owner;
  PoolStream& reader;
  Event owner_did;
  Event reader_did;

  Pair(PoolStream& of_owner, PoolStream& of_reader)
      : owner(of_owner),
        reader(of_reader),
        owner_did(of_owner.device()),
        reader_did(of_reader.device()) {}

  void pass(std::size_t bytes, std::uint32_t seed, bool is_reachable);
};

// A use by another device is no use that the owner's pool knows of: it is the owner's stream that
// has to come after it, before the block is freed there.
void Pair::pass(std::size_t bytes, std::uint32_t seed, bool is_reachable) {
  void* const given = owner.get_block(bytes);
  void* const copy = reader.get_block(bytes);
  const Pattern sent{reinterpret_cast<DeviceAddress>(given), bytes, seed};
  Pattern received = sent;
  received.address = reinterpret_cast<DeviceAddress>(copy);
  Pattern answer = sent;
  answer.seed = ~seed;
  {
    const OnDevice on(owner.device());
    must(owner.kernels().fill(owner.raw(), sent), "filling a block");
    owner_did.order(owner.raw(), reader.raw());
  }
  {
    const OnDevice on(reader.device());
    must(cudaMemcpyPeerAsync(copy, reader.device(), given, owner.device(), bytes, reader.raw()),
         "cudaMemcpyPeerAsync");
    must(reader.kernels().check(reader.raw(), received), "checking a copy");
    if (is_reachable) {
      must(reader.kernels().check(reader.raw(), sent), "checking another device's block");
      must(reader.kernels().fill(reader.raw(), answer), "filling another device's block");
    }
    reader_did.order(reader.raw(), owner.raw());
  }
  {
    const OnDevice on(owner.device());
    must(owner.kernels().check(owner.raw(), is_reachable ? answer : sent), "checking a block");
    if (is_reachable) {
      must(owner.kernels().check(owner.raw(), received), "checking another device's block");
    }
    owner_did.order(owner.raw(), reader.raw());
  }
  owner.free_block(given);
  reader.free_block(copy);
}

std::uint64_t wrong_words(Fleet& fleet) {
  std::uint64_t words = 0;
  for (std::size_t i = 0; i < fleet.count(); ++i) {
    const OnDevice on(fleet.card(i).device);
    words += must(fleet.card(i).kernels->mismatches(), "reading counters").words;
  }
  return words;
}

}  // namespace

void copy_between(Task& task) {
  Fleet fleet(task.cards, task.mode, capacity_of(task.mode), task.watch);
  {
    std::vector<std::unique_ptr<PoolStream>> streams;
    for (std::size_t i = 0; i < fleet.count(); ++i) {
      streams.push_back(std::make_unique<PoolStream>(fleet, i));
    }
    std::vector<std::unique_ptr<Pair>> pairs;
    for (auto& owner : streams) {
      for (auto& reader : streams) {
        if (owner == reader && fleet.count() > 1) continue;
        pairs.push_back(std::make_unique<Pair>(*owner, *reader));
      }
    }
    const Churn churn(fleet);
    std::mt19937_64 random(7);
    std::uint64_t wrong_before = 0;
    while (task.row.rounds < task.budget.rounds && !task.budget.is_over()) {
      Pair& pair = *pairs[task.row.rounds % pairs.size()];
      const std::size_t power = std::size_t{1} << (12 + random() % 13);
      pair.pass(power + random() % power, seed_of(random()),
                can_reach(pair.reader.device(), pair.owner.device()) &&
                    can_reach(pair.owner.device(), pair.reader.device()));
      task.watch.report().progress = ++task.row.rounds;
      if (task.row.rounds % kRoundsPerLook != 0) continue;
      const std::uint64_t wrong = wrong_words(fleet);
      if (wrong != wrong_before) {
        task.watch.report().fault("copies between devices",
                                  std::to_string(wrong - wrong_before) +
                                      " words were wrong in the " + std::to_string(kRoundsPerLook) +
                                      " rounds before " + std::to_string(task.row.rounds));
        wrong_before = wrong;
      }
    }
    task.row.others = churn.allocations();
  }
  task.row.pages_moved = fleet.pages_moved();
  fleet.expect_empty();
}

}  // namespace gpupool::gpu_tests
