// Pages that have moved are mapped at another address, and every device that may use them has to be
// given access there again.
#include <string>
#include <vector>

#include "tests/gpu/peers/steps.h"
#include "tests/support/units.h"

namespace gpupool::gpu_tests {
namespace {

constexpr std::size_t kPages = 32;  // all that the pool may hold
constexpr std::size_t kLongPages = 10;

/// Every other page of a full pool is given back, and a block longer than any of the holes asked
/// for: it lies in pages that moved.
void* get_moved(PoolStream& stream, std::vector<void*>& teeth) {
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < kPages; ++i) blocks.push_back(stream.get_block(kPage));
  for (std::size_t i = 0; i < kPages; ++i) {
    if (i % 2 == 0) {
      stream.free_block(blocks[i]);
    } else {
      teeth.push_back(blocks[i]);
    }
  }
  stream.settle();
  return stream.get_block(kLongPages * kPage);
}

void read_and_write(PoolStream& owner, PoolStream& reader, void* block, std::uint32_t seed) {
  const Pattern sent{reinterpret_cast<DeviceAddress>(block), kLongPages * kPage, seed};
  Pattern answer = sent;
  answer.seed = ~seed;
  {
    const OnDevice on(owner.device());
    must(owner.kernels().fill(owner.raw(), sent), "filling a block");
  }
  owner.synchronize();
  {
    const OnDevice on(reader.device());
    must(reader.kernels().check(reader.raw(), sent), "reading another device's block");
    must(reader.kernels().fill(reader.raw(), answer), "writing another device's block");
  }
  reader.synchronize();
  {
    const OnDevice on(owner.device());
    must(owner.kernels().check(owner.raw(), answer), "reading a block");
  }
  owner.synchronize();
}

}  // namespace

void reach_moved_pages(Task& task) {
  Fleet fleet(task.cards, task.mode, kPages * kPage, task.watch);
  {
    std::vector<std::unique_ptr<PoolStream>> streams;
    for (std::size_t i = 0; i < fleet.count(); ++i) {
      streams.push_back(std::make_unique<PoolStream>(fleet, i));
    }
    while (task.row.rounds < task.budget.rounds && !task.budget.is_over()) {
      for (auto& owner : streams) {
        std::vector<void*> blocks;
        void* const moved = get_moved(*owner, blocks);
        blocks.push_back(moved);
        for (auto& reader : streams) {
          const bool is_wanted = reader != owner || fleet.count() == 1;
          if (!is_wanted || !can_reach(reader->device(), owner->device())) continue;
          read_and_write(*owner, *reader, moved, seed_of(task.row.rounds));
        }
        for (void* block : blocks) owner->free_block(block);
        owner->settle();
      }
      task.watch.report().progress = ++task.row.rounds;
    }
  }
  task.row.pages_moved = fleet.pages_moved();
  fleet.expect_empty();
}

}  // namespace gpupool::gpu_tests
