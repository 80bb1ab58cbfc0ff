/* A whole program against gpupool.h on the simulated device: every function is called, and what each
 * promises is looked at. Prints what failed, and exits 1 if anything did. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpupool/gpupool.h"

static int failures = 0;

#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);          \
      printf("  last error: %s\n", gpupool_last_error());             \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

#define MIB ((size_t)1 << 20)

struct misuses {
  unsigned count;
  gpupool_misuse_report last;
};

static void on_misuse(const gpupool_misuse_report* report, void* context) {
  struct misuses* seen = context;
  ++seen->count;
  seen->last = *report;
}

static gpupool_pool* make_pool(struct misuses* seen) {
  static const char* const tags[] = {"weights", "activations"};
  gpupool_options options;
  gpupool_pool* pool = NULL;
  gpupool_options_init(&options, sizeof options);
  EXPECT(options.size == sizeof options);
  EXPECT(options.tag_count == 5);
  options.device_kind = GPUPOOL_DEVICE_SIMULATED;
  options.name = "from_c";
  options.simulated_capacity_bytes = (uint64_t)1 << 30;
  options.capacity_bytes = 256 * MIB;
  options.tags = tags;
  options.tag_count = 2;
  options.misuse_handler = on_misuse;
  options.misuse_context = seen;
  EXPECT(gpupool_create(&options, &pool) == GPUPOOL_OK);
  if (pool == NULL) exit(1);
  return pool;
}

static gpupool_stats stats_of(const gpupool_pool* pool) {
  gpupool_stats stats;
  memset(&stats, 0xff, sizeof stats);
  EXPECT(gpupool_get_stats(pool, &stats, sizeof stats) == GPUPOOL_OK);
  return stats;
}

static void test_wrong_options(void) {
  gpupool_options options;
  gpupool_pool* pool = (gpupool_pool*)&options;
  gpupool_options_init(&options, sizeof options);
  options.device_kind = GPUPOOL_DEVICE_SIMULATED;
  options.recycling = 77;
  EXPECT(gpupool_create(&options, &pool) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(pool == NULL);
  EXPECT(strstr(gpupool_last_error(), "recycling") != NULL);
  gpupool_options_init(&options, sizeof options);
  options.device_kind = GPUPOOL_DEVICE_SIMULATED;
  options.slack = -1;
  EXPECT(gpupool_create(&options, &pool) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(strstr(gpupool_last_error(), "slack") != NULL);
  options.device_kind = 9;
  EXPECT(gpupool_create(&options, &pool) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(gpupool_create(&options, NULL) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(gpupool_allocate(NULL, 1, NULL, (void**)&pool) == GPUPOOL_INVALID_ARGUMENT);
  gpupool_destroy(NULL);
}

static void expect_refused(const gpupool_options* options, const char* name) {
  gpupool_pool* pool = NULL;
  EXPECT(gpupool_create(options, &pool) == GPUPOOL_INVALID_ARGUMENT && pool == NULL);
  EXPECT(strstr(gpupool_last_error(), name) != NULL);
}

static void on_live_block(const gpupool_block* block, void* context) {
  if (block->state == GPUPOOL_BLOCK_LIVE) *(gpupool_block*)context = *block;
}

static void on_number_of_waits(const char* name, uint64_t count, double value, void* context) {
  (void)value;
  if (strcmp(name, "ladder_tries.wait") == 0) *(uint64_t*)context = count;
}

/* How often a request waited whose memory another stream still uses. */
static uint64_t waits_of(const gpupool_options* options) {
  uint64_t waits = 99;
  gpupool_raw_stream first = NULL;
  gpupool_raw_stream second = NULL;
  void* block = NULL;
  gpupool_pool* pool = NULL;
  EXPECT(gpupool_create(options, &pool) == GPUPOOL_OK);
  if (pool == NULL) exit(1);
  EXPECT(gpupool_simulated_create_stream(pool, &first) == GPUPOOL_OK);
  EXPECT(gpupool_simulated_create_stream(pool, &second) == GPUPOOL_OK);
  EXPECT(gpupool_allocate(pool, 200 * MIB, first, &block) == GPUPOOL_OK);
  EXPECT(gpupool_simulated_launch(pool, first, block, MIB) == GPUPOOL_OK);
  EXPECT(gpupool_deallocate(pool, block, first) == GPUPOOL_OK);
  EXPECT(gpupool_allocate(pool, 200 * MIB, second, &block) != GPUPOOL_OK);
  EXPECT(gpupool_visit_stats(pool, on_number_of_waits, &waits) == GPUPOOL_OK);
  EXPECT(gpupool_simulated_complete(pool, first) == GPUPOOL_OK);
  gpupool_destroy(pool);
  return waits;
}

/* What the debug options and the wait say reaches the pool. */
static void test_debug_and_wait(void) {
  gpupool_options options;
  gpupool_pool* pool = NULL;
  gpupool_block block;
  void* address = NULL;
  gpupool_options_init(&options, sizeof options);
  EXPECT(options.debug_scrub + options.debug_poison + options.debug_canary + options.debug_nvtx ==
         0);
  EXPECT(options.out_of_memory_wait_ns == 10000000000u);
  options.device_kind = GPUPOOL_DEVICE_SIMULATED;
  options.capacity_bytes = 256 * MIB;
  EXPECT(waits_of(&options) == 1);
  options.out_of_memory_wait_ns = 0;
  EXPECT(waits_of(&options) == 0);
  options.out_of_memory_wait_ns = (uint64_t)1 << 60;
  expect_refused(&options, "out_of_memory.wait_ns");
  options.out_of_memory_wait_ns = 0;
  options.debug_scrub = 1;
  options.debug_poison = 1;
  expect_refused(&options, "debug.poison");
  options.debug_poison = 0;
  options.debug_nvtx = 1;
  expect_refused(&options, "debug.nvtx");
  options.debug_nvtx = 0;
  options.debug_canary = 1;
  EXPECT(gpupool_create(&options, &pool) == GPUPOOL_OK);
  if (pool == NULL) return;
  EXPECT(gpupool_allocate(pool, 3 * MIB, NULL, &address) == GPUPOOL_OK);
  memset(&block, 0, sizeof block);
  EXPECT(gpupool_visit_blocks(pool, on_live_block, &block) == GPUPOOL_OK);
  EXPECT(block.requested_bytes == 3 * MIB && block.bytes >= 3 * MIB + 128);
  EXPECT(block.has_stream_handle == 1 && block.stream_handle == 0);
  EXPECT(gpupool_deallocate(pool, address, NULL) == GPUPOOL_OK);
  gpupool_destroy(pool);
}

/* A program that was built against a shorter struct gets no more than it has room for, and what it
 * cannot say is the default. */
static void test_shorter_structs(void) {
  gpupool_options options;
  gpupool_stats stats;
  struct misuses seen;
  gpupool_pool* pool;
  const size_t until_name = offsetof(gpupool_options, name);
  memset(&seen, 0, sizeof seen);
  memset(&options, 0x5a, sizeof options);
  gpupool_options_init(&options, until_name);
  EXPECT(options.size == until_name);
  EXPECT(((unsigned char*)&options)[until_name] == 0x5a);
  options.device_kind = GPUPOOL_DEVICE_SIMULATED;
  EXPECT(gpupool_create(&options, &pool) == GPUPOOL_OK);
  gpupool_destroy(pool);

  pool = make_pool(&seen);
  memset(&stats, 0x5a, sizeof stats);
  EXPECT(gpupool_get_stats(pool, &stats, offsetof(gpupool_stats, misses)) == GPUPOOL_OK);
  EXPECT(stats.size == offsetof(gpupool_stats, misses));
  EXPECT(stats.requests == 0);
  EXPECT(((unsigned char*)&stats.misses)[0] == 0x5a);
  gpupool_destroy(pool);
}

static void refuse(gpupool_options* options, const char* said) {
  gpupool_pool* pool = NULL;
  EXPECT(gpupool_create(options, &pool) == GPUPOOL_INVALID_ARGUMENT && pool == NULL);
  if (strstr(gpupool_last_error(), said) == NULL) fprintf(stderr, "%s\n", gpupool_last_error());
  EXPECT(strstr(gpupool_last_error(), said) != NULL);
  gpupool_destroy(pool);
  gpupool_options_init(options, sizeof *options);
  options->device_kind = GPUPOOL_DEVICE_SIMULATED;
}

/* A size that no version has, fields of a later one, and switches that are neither 0 nor 1. */
static void test_sizes_and_switches(void) {
  struct {
    gpupool_options known;
    uint64_t later[2];
  } longer;
  static const uint32_t sizes[] = {0, 3, 4, 8, 17, sizeof(gpupool_options) - 4, 4104, ~(uint32_t)0};
  gpupool_options* const options = &longer.known;
  gpupool_request request;
  gpupool_pool* pool = NULL;
  void* block = NULL;
  size_t i;
  memset(&longer, 0, sizeof longer);
  gpupool_options_init(options, sizeof *options);
  for (i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    options->size = sizes[i];
    refuse(options, "gpupool_options: size is none");
  }
  options->verify_streams = 7;
  refuse(options, "verify_streams");
  options->debug_scrub = 2;
  refuse(options, "debug_scrub");
  options->debug_poison = 2;
  refuse(options, "debug_poison");
  options->debug_canary = 2;
  refuse(options, "debug_canary");
  options->debug_nvtx = 2;
  refuse(options, "debug_nvtx");
  options->size = sizeof longer;
  longer.later[1] = 1;
  refuse(options, "a later version added");
  longer.later[1] = 0;
  options->size = sizeof longer;
  EXPECT(gpupool_create(options, &pool) == GPUPOOL_OK);
  gpupool_request_init(&request, sizeof request);
  request.bytes = 512;
  request.size = 3;
  EXPECT(gpupool_allocate_request(pool, &request, NULL, &block) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(strstr(gpupool_last_error(), "gpupool_request: size is none") != NULL);
  EXPECT(block == NULL);
  gpupool_destroy(pool);
}

static void test_blocks(gpupool_pool* pool, struct misuses* seen) {
  void* block = NULL;
  void* aligned = NULL;
  size_t bytes = 0;
  gpupool_request request;
  EXPECT(gpupool_allocate(pool, 0, NULL, &block) == GPUPOOL_OK && block == NULL);
  EXPECT(gpupool_deallocate(pool, NULL, NULL) == GPUPOOL_OK);
  EXPECT(gpupool_allocate(pool, 3 * MIB, NULL, &block) == GPUPOOL_OK && block != NULL);
  EXPECT(gpupool_find_size(pool, block, &bytes) == GPUPOOL_OK && bytes == 3 * MIB);
  EXPECT(gpupool_find_size(pool, (char*)block + 1, &bytes) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(stats_of(pool).live_requested_bytes == 3 * MIB);
  EXPECT(gpupool_deallocate(pool, block, NULL) == GPUPOOL_OK);
  EXPECT(gpupool_deallocate(pool, block, NULL) == GPUPOOL_REFUSED);
  EXPECT(seen->count == 1 && seen->last.kind == GPUPOOL_MISUSE_DOUBLE_FREE);
  EXPECT(seen->last.pointer == block && seen->last.first_of_kind == 1);
  EXPECT(gpupool_deallocate(pool, &bytes, NULL) == GPUPOOL_REFUSED);
  EXPECT(seen->last.kind == GPUPOOL_MISUSE_FOREIGN_POINTER);

  gpupool_request_init(&request, sizeof request);
  EXPECT(request.tag == GPUPOOL_TAG_CURRENT && request.alignment == 512);
  request.bytes = MIB;
  request.alignment = 2 * MIB;
  EXPECT(gpupool_allocate_request(pool, &request, NULL, &aligned) == GPUPOOL_OK);
  EXPECT(((uintptr_t)aligned & (2 * MIB - 1)) == 0);
  EXPECT(gpupool_deallocate_sized(pool, aligned, 5, NULL) == GPUPOOL_OK);
  EXPECT(seen->last.kind == GPUPOOL_MISUSE_WRONG_SIZE && seen->last.given == 5);
  request.alignment = 3;
  EXPECT(gpupool_allocate_request(pool, &request, NULL, &aligned) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(aligned == NULL);
  request.allocation_class = 8;
  EXPECT(gpupool_allocate_request(pool, &request, NULL, &aligned) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(gpupool_last_error()[0] != '\0');
}

/* What one stream freed goes to another once its work is done, and not before. */
static void test_streams(gpupool_pool* pool) {
  gpupool_raw_stream first = NULL;
  gpupool_raw_stream second = NULL;
  gpupool_stream* adopted = NULL;
  gpupool_stream* again = NULL;
  void* block = NULL;
  void* other = NULL;
  EXPECT(gpupool_simulated_create_stream(pool, &first) == GPUPOOL_OK);
  EXPECT(gpupool_simulated_create_stream(pool, &second) == GPUPOOL_OK);
  EXPECT(gpupool_adopt_stream(pool, first, &adopted) == GPUPOOL_OK);
  EXPECT(gpupool_adopt_stream(pool, first, &again) == GPUPOOL_OK && again == adopted);
  EXPECT(gpupool_allocate_adopted(pool, 200 * MIB, adopted, &block) == GPUPOOL_OK);
  EXPECT(gpupool_simulated_launch(pool, second, block, MIB) == GPUPOOL_OK);
  EXPECT(gpupool_record_stream(pool, block, second) == GPUPOOL_OK);
  EXPECT(gpupool_record_use(pool, block, second) == GPUPOOL_OK);
  EXPECT(gpupool_record_use(pool, &block, second) == GPUPOOL_REFUSED);
  EXPECT(gpupool_deallocate_adopted(pool, block, adopted) == GPUPOOL_OK);
  EXPECT(gpupool_allocate(pool, 200 * MIB, first, &other) != GPUPOOL_OK && other == NULL);
  EXPECT(gpupool_simulated_complete(pool, second) == GPUPOOL_OK);
  gpupool_maintain(pool, 1000000);
  EXPECT(gpupool_allocate(pool, 200 * MIB, first, &other) == GPUPOOL_OK && other == block);
  EXPECT(gpupool_deallocate(pool, other, first) == GPUPOOL_OK);
  EXPECT(gpupool_note_dependency(pool, first, second) == GPUPOOL_OK);
  EXPECT(gpupool_release_stream(pool, adopted) == GPUPOOL_OK);
  EXPECT(gpupool_release_stream(pool, adopted) == GPUPOOL_REFUSED);
  EXPECT(gpupool_simulated_destroy_stream(pool, first) == GPUPOOL_OK);
}

static int takes(gpupool_raw_stream stream, void* context) { return stream == context; }

/* What a private pool has served is nobody else's until it is released. */
static void test_private_pools(gpupool_pool* pool) {
  const gpupool_private_pool id = {7, 1};
  const gpupool_private_pool none = {0, 0};
  gpupool_raw_stream stream = NULL;
  gpupool_stream* adopted = NULL;
  void* block = NULL;
  void* other = NULL;
  EXPECT(gpupool_simulated_create_stream(pool, &stream) == GPUPOOL_OK);
  EXPECT(gpupool_begin_private(pool, id, takes, stream) == GPUPOOL_OK);
  EXPECT(gpupool_begin_private(pool, id, NULL, NULL) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(gpupool_begin_private(pool, none, takes, stream) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(gpupool_allocate(pool, 200 * MIB, stream, &block) == GPUPOOL_OK);
  EXPECT(gpupool_end_private(pool, id) == GPUPOOL_OK);
  EXPECT(gpupool_end_private(pool, id) == GPUPOOL_OK);
  EXPECT(stats_of(pool).pinned_bytes >= 200 * MIB);
  EXPECT(gpupool_deallocate(pool, block, stream) == GPUPOOL_OK);
  EXPECT(gpupool_allocate(pool, 200 * MIB, stream, &other) != GPUPOOL_OK);
  EXPECT(gpupool_release_private(pool, id) == GPUPOOL_OK);
  EXPECT(gpupool_release_private(pool, id) == GPUPOOL_OK);
  gpupool_maintain(pool, 1000000);
  gpupool_maintain(pool, 1000000);
  EXPECT(stats_of(pool).pinned_bytes == 0);
  EXPECT(gpupool_allocate(pool, 200 * MIB, stream, &other) == GPUPOOL_OK);
  EXPECT(gpupool_deallocate(pool, other, stream) == GPUPOOL_OK);

  EXPECT(gpupool_adopt_stream(pool, stream, &adopted) == GPUPOOL_OK);
  EXPECT(gpupool_begin_capture(pool, adopted, id) == GPUPOOL_OK);
  EXPECT(gpupool_simulated_begin_capture(pool, stream) == GPUPOOL_OK);
  EXPECT(gpupool_allocate_adopted(pool, MIB, adopted, &block) == GPUPOOL_OK);
  EXPECT(stats_of(pool).pinned_bytes >= MIB);
  EXPECT(gpupool_deallocate_adopted(pool, block, adopted) == GPUPOOL_OK);
  EXPECT(gpupool_simulated_end_capture(pool, stream) == GPUPOOL_OK);
  EXPECT(gpupool_end_capture(pool, adopted) == GPUPOOL_OK);
  EXPECT(gpupool_begin_capture(pool, NULL, id) != GPUPOOL_OK);
  EXPECT(gpupool_release_private(pool, id) == GPUPOOL_OK);
}

static void test_tags(gpupool_pool* pool) {
  uint32_t tag = 0;
  void* block = NULL;
  EXPECT(gpupool_find_tag(pool, "activations", &tag) == GPUPOOL_OK && tag == 1);
  EXPECT(gpupool_set_tag(tag) == GPUPOOL_TAG_NONE);
  EXPECT(gpupool_allocate(pool, 7 * MIB, NULL, &block) == GPUPOOL_OK);
  EXPECT(gpupool_set_tag(GPUPOOL_TAG_NONE) == tag);
  EXPECT(stats_of(pool).tag_live_bytes[1] == 7 * MIB);
  EXPECT(gpupool_deallocate(pool, block, NULL) == GPUPOOL_OK);
  EXPECT(stats_of(pool).tag_live_bytes[1] == 0);
  EXPECT(gpupool_find_tag(pool, "nothing", &tag) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(tag == GPUPOOL_TAG_NONE);
}

static void test_failure(gpupool_pool* pool) {
  char text[16];
  char whole[8192];
  void* block = NULL;
  gpupool_failure failure;
  EXPECT(gpupool_allocate(pool, 4096 * MIB, NULL, &block) == GPUPOOL_LIMIT_EXCEEDED);
  EXPECT(block == NULL);
  EXPECT(strstr(gpupool_last_error(), "limit") != NULL);
  EXPECT(gpupool_get_failure(pool, &failure, sizeof failure) == GPUPOOL_OK);
  EXPECT(failure.happened == 1 && failure.error == GPUPOOL_LIMIT_EXCEEDED);
  EXPECT(failure.reason == GPUPOOL_MISS_SIZE && failure.requested_bytes == 4096 * MIB);
  EXPECT(gpupool_failure_text(pool, whole, sizeof whole) == strlen(whole));
  EXPECT(gpupool_failure_text(pool, text, sizeof text) == strlen(whole));
  EXPECT(strlen(text) == sizeof text - 1 && strncmp(text, whole, sizeof text - 1) == 0);
  EXPECT(gpupool_failure_text(pool, NULL, 0) == strlen(whole));
  EXPECT(gpupool_failure_json(pool, whole, sizeof whole) == strlen(whole));
  EXPECT(strncmp(whole, "{\"happened\":true,\"error\":\"limit_exceeded\",", 42) == 0);
  EXPECT(strstr(whole, ",\"requested_bytes\":4294967296,") != NULL);
  EXPECT(strstr(whole, ",\"last_misses\":[") != NULL && strstr(whole, ",\"rungs\":{") != NULL);
  EXPECT(whole[strlen(whole) - 1] == '}');
  EXPECT(gpupool_allocate(pool, (size_t)-1, NULL, &block) != GPUPOOL_OK && block == NULL);
  EXPECT(strcmp(gpupool_status_name(GPUPOOL_LIMIT_EXCEEDED), "limit_exceeded") == 0);
  EXPECT(strcmp(gpupool_status_name(GPUPOOL_REFUSED), "refused") == 0);
  EXPECT(strcmp(gpupool_status_name(GPUPOOL_OK), "ok") == 0);
}

struct sums {
  uint64_t hits;
  uint64_t misuses;
  uint64_t block_bytes;
  uint64_t live_blocks;
  uint64_t copied_bytes;
};

static void on_number(const char* name, uint64_t count, double value, void* context) {
  struct sums* sums = context;
  (void)value;
  if (strcmp(name, "hits") == 0) sums->hits = count;
  if (strncmp(name, "misuses.", 8) == 0) sums->misuses += count;
}

static void on_block(const gpupool_block* block, void* context) {
  struct sums* sums = context;
  if (block->size != sizeof *block) return;
  sums->block_bytes += block->bytes;
  if (block->state == GPUPOOL_BLOCK_LIVE) ++sums->live_blocks;
}

static void test_reports(gpupool_pool* pool) {
  struct sums sums;
  gpupool_block blocks[8];
  size_t count, i;
  void* block = NULL;
  gpupool_stats stats;
  memset(&sums, 0, sizeof sums);
  EXPECT(gpupool_allocate(pool, 5 * MIB, NULL, &block) == GPUPOOL_OK);
  stats = stats_of(pool);
  EXPECT(stats.size == sizeof stats && stats.tag_count == 2);
  EXPECT(stats.held_bytes == stats.live_requested_bytes + stats.waste_bytes + stats.cached_bytes +
                                 stats.pending_bytes + stats.free_bytes);
  EXPECT(stats.requests == stats.hits + stats.misses && stats.limit_bytes == 256 * MIB);
  EXPECT(gpupool_visit_stats(pool, on_number, &sums) == GPUPOOL_OK);
  EXPECT(sums.hits == stats.hits && sums.misuses == stats.misuses && stats.misuses > 0);
  EXPECT(gpupool_visit_blocks(pool, on_block, &sums) == GPUPOOL_OK);
  EXPECT(sums.live_blocks == 1 && sums.block_bytes >= 5 * MIB);
  EXPECT(gpupool_copy_blocks(pool, NULL, sizeof blocks[0], 0) >= 1);
  memset(blocks, 0x5a, sizeof blocks);
  count = gpupool_copy_blocks(pool, blocks, sizeof blocks[0], 8);
  EXPECT(count >= 1 && count < 8 && blocks[count].size == 0x5a5a5a5a);
  for (i = 0; i < count; ++i) sums.copied_bytes += blocks[i].bytes;
  EXPECT(sums.copied_bytes == sums.block_bytes);
  EXPECT(gpupool_deallocate(pool, block, NULL) == GPUPOOL_OK);
  EXPECT(gpupool_allocate(pool, 4096, NULL, &block) == GPUPOOL_OK);
  EXPECT(gpupool_deallocate(pool, block, NULL) == GPUPOOL_OK);
  EXPECT(gpupool_drain(pool) > 0);
  gpupool_reset_peaks(pool);
  EXPECT(stats_of(pool).peak_requested_bytes == 0);
  EXPECT(gpupool_trim(pool, 0) > 0);
  EXPECT(stats_of(pool).held_bytes == 0);
  EXPECT(gpupool_set_capacity(pool, 128 * MIB, 0) == GPUPOOL_OK);
  EXPECT(stats_of(pool).limit_bytes == 128 * MIB);
  EXPECT(gpupool_set_capacity(pool, 0, 1.5) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(strstr(gpupool_last_error(), "a fraction above 0") != NULL);
  EXPECT(gpupool_set_capacity(NULL, MIB, 0) == GPUPOOL_INVALID_ARGUMENT);
  EXPECT(stats_of(pool).limit_bytes == 128 * MIB);
  EXPECT(gpupool_set_capacity(pool, 256 * MIB, 0) == GPUPOOL_OK);
}

static void test_recording(gpupool_pool* pool) {
  static const char path[] = "c_api_test.trace";
  gpupool_record_report report;
  void* block = NULL;
  EXPECT(gpupool_record(pool, "/nowhere/at/all.trace") != GPUPOOL_OK);
  EXPECT(gpupool_record(pool, path) == GPUPOOL_OK);
  EXPECT(gpupool_allocate(pool, MIB, NULL, &block) == GPUPOOL_OK);
  EXPECT(gpupool_deallocate(pool, block, NULL) == GPUPOOL_OK);
  EXPECT(gpupool_stop_recording(pool, &report, sizeof report) == GPUPOOL_OK);
  EXPECT(report.allocations == 1 && report.frees == 1 && report.end == GPUPOOL_RECORD_STOPPED);
  EXPECT(gpupool_stop_recording(pool, NULL, 0) != GPUPOOL_OK);
  remove(path);
}

int main(void) {
  struct misuses seen;
  gpupool_pool* pool;
  void* leaked = NULL;
  memset(&seen, 0, sizeof seen);
  EXPECT(gpupool_version()[0] != '\0');
  EXPECT(gpupool_last_error()[0] == '\0');
  test_wrong_options();
  test_shorter_structs();
  test_sizes_and_switches();
  test_debug_and_wait();
  pool = make_pool(&seen);
  test_blocks(pool, &seen);
  test_streams(pool);
  test_private_pools(pool);
  test_tags(pool);
  test_failure(pool);
  test_reports(pool);
  test_recording(pool);
  EXPECT(gpupool_allocate(pool, MIB, NULL, &leaked) == GPUPOOL_OK);
  gpupool_destroy(pool);
  EXPECT(seen.last.kind == GPUPOOL_MISUSE_LEAK && seen.last.given == 1);
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
