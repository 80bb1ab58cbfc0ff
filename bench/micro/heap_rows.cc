// The C library's heap and mimalloc, with the same loop and sizes: the pair that a host allocator
// costs is what the small sizes are held against.
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "bench/micro/rows.h"
#include "bench/micro/sizes.h"

namespace gpupool::bench {
namespace {

struct Heap {
  void* (*allocate)(std::size_t bytes) = nullptr;
  void (*free)(void* block) = nullptr;
};

/// Loaded, not linked: where mimalloc is linked, it takes the place of malloc in the whole program,
/// the C library's own included.
Heap load_mimalloc() {
  void* const library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  return {reinterpret_cast<void* (*)(std::size_t)>(dlsym(library, "mi_malloc")),
          reinterpret_cast<void (*)(void*)>(dlsym(library, "mi_free"))};
}

void measure_heap_pairs(benchmark::State& state, Heap heap, std::size_t bytes) {
  if (heap.allocate == nullptr || heap.free == nullptr) {
    state.SkipWithError("libmimalloc.so.2 cannot be loaded");
    return;
  }
  // One more block of the page stays live: a page that goes empty with every free costs mimalloc
  // half as much again, and no program works that way.
  void* const held = heap.allocate(bytes);
  // Through pointers that the compiler does not know, so that it cannot leave the pair out. Not
  // through benchmark::DoNotOptimize: with GCC at -O1 its version 1.7 loses the value.
  for (auto _ : state) heap.free(heap.allocate(bytes));
  heap.free(held);
}

}  // namespace

void register_heap_rows() {
  const Heap mimalloc = load_mimalloc();
  const Heap glibc = {std::malloc, std::free};
  const auto add = [](const char* name, Heap heap) {
    for (const std::size_t bytes : kPairBytes) {
      const std::string row = std::string(name) + "/" + std::to_string(bytes);
      benchmark::RegisterBenchmark(row.c_str(), measure_heap_pairs, heap, bytes);
    }
  };
  add("mimalloc_pair", mimalloc);
  add("glibc_pair", glibc);
}

}  // namespace gpupool::bench
