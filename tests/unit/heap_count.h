// How often the calling thread took memory from the host's heap by operator new, in programs that
// are linked with heap_count.cc.
#ifndef GPUPOOL_TESTS_UNIT_HEAP_COUNT_H_
#define GPUPOOL_TESTS_UNIT_HEAP_COUNT_H_

#include <cstdint>

namespace gpupool {

std::uint64_t heap_allocations() noexcept;

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_UNIT_HEAP_COUNT_H_
