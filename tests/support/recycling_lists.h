// Random lists for a pool that recycles pages: a small capacity that is full most of the time, and
// phases that leave its pages empty in all the ways that programs do.
//
//   spread   the card is filled with blocks of about a page, all but every k-th are freed, and what
//            must fit is asked for as one block
//   pin      the same, with small blocks that stay in between instead
//   churn    sizes from 512 bytes to the capacity, freed in any order, on any stream
//   race     blocks are freed with work on them unfinished, and their room is asked for before,
//            while and after it completes
//
// In all of them come trims, upkeep and completions at random. The same seed gives the same list.
#ifndef GPUPOOL_TESTS_SUPPORT_RECYCLING_LISTS_H_
#define GPUPOOL_TESTS_SUPPORT_RECYCLING_LISTS_H_

#include <cstdint>

#include "tests/support/generator.h"

namespace gpupool::test {

struct RecyclingListOptions {
  Recycling recycling = Recycling::eager;
  AliasReuse alias_reuse = AliasReuse::wait;
  SimulatedMemory memory = SimulatedMemory::address_only;
  std::uint64_t operations = 500;
};

Scenario generate_recycling(std::uint64_t seed, const RecyclingListOptions& options);

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SUPPORT_RECYCLING_LISTS_H_
