/* A C program that takes its memory from a pool: on the card, or on the simulated device where there
 * is none. It asks for blocks, frees them, and says what that came to. */
#include <stdio.h>

#include "gpupool/gpupool.h"

#define MIB ((size_t)1 << 20)

static int complain(const char* what) {
  fprintf(stderr, "%s: %s\n", what, gpupool_last_error());
  return 1;
}

static gpupool_pool* open_pool(void) {
  gpupool_options options;
  gpupool_pool* pool = NULL;
  gpupool_options_init(&options, sizeof options);
  options.name = "from_c";
  options.capacity_bytes = 1024 * MIB;
  if (gpupool_create(&options, &pool) == GPUPOOL_OK) return pool;
  complain("no card, so the simulated device");
  options.device_kind = GPUPOOL_DEVICE_SIMULATED;
  if (gpupool_create(&options, &pool) != GPUPOOL_OK) complain("no pool");
  return pool;
}

int main(void) {
  gpupool_pool* const pool = open_pool();
  gpupool_stats stats;
  int step;
  if (pool == NULL) return 1;
  for (step = 0; step < 100; ++step) {
    void* block = NULL;
    /* NULL is the default stream, or any cudaStream_t. */
    if (gpupool_allocate(pool, 64 * MIB, NULL, &block) != GPUPOOL_OK) return complain("no memory");
    /* ... kernels of that stream use the block ... */
    if (gpupool_deallocate(pool, block, NULL) != GPUPOOL_OK) return complain("not freed");
  }
  if (gpupool_get_stats(pool, &stats, sizeof stats) != GPUPOOL_OK) return complain("no figures");
  printf("%llu requests, %llu of them without the driver, %llu MiB held\n",
         (unsigned long long)stats.requests, (unsigned long long)stats.hits,
         (unsigned long long)(stats.held_bytes / MIB));
  gpupool_destroy(pool);
  return 0;
}
