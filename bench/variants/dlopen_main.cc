// The plain pairs inside a module that is loaded at run time and brings the allocator with it, as
// Python loads an extension: what thread-local storage costs there.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "bench/micro/pair_rows.h"
#include "bench/micro/run_rows.h"

namespace {

// This program does not link the allocator, the module alone does.
[[noreturn]] void give_up() {
  std::fprintf(stderr, "benchmark: %s\n", dlerror());
  std::exit(1);
}

template <class Function>
Function find(void* module, const char* name) {
  void* const symbol = dlsym(module, name);
  if (symbol == nullptr) give_up();
  return reinterpret_cast<Function>(symbol);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace gpupool::bench;
  void* const module = dlopen(GPUPOOL_BENCH_MODULE, RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) give_up();
  PairFunctions functions;
  functions.open = find<decltype(functions.open)>(module, "gpupool_pair_open");
  functions.run = find<decltype(functions.run)>(module, "gpupool_pair_run");
  functions.close = find<decltype(functions.close)>(module, "gpupool_pair_close");
  register_pair_rows("dlopen_pair", functions);
  return run_rows(argc, argv);
}
