/* The C interface of gpupool, for programs in C and for whatever calls C: ctypes, cgo, Rust,
 * plug-ins.
 *
 *     gpupool_options options;
 *     gpupool_options_init(&options, sizeof options);
 *     gpupool_pool* pool = NULL;
 *     if (gpupool_create(&options, &pool) != GPUPOOL_OK) log_line(gpupool_last_error());
 *     void* block = NULL;
 *     if (gpupool_allocate(pool, bytes, cuda_stream, &block) != GPUPOOL_OK) ...
 *     gpupool_deallocate(pool, block, cuda_stream);
 *     gpupool_destroy(pool);
 *
 * Invariants: nothing throws; what fails returns a status other than GPUPOOL_OK, changes nothing,
 * and leaves a text for a person in gpupool_last_error() of the calling thread. Structs have their
 * size first and only ever grow at their end; whoever fills one says how long it is for the caller,
 * so that programs and libraries of different versions work together: what a shorter one lacks is
 * the default, and a longer one is taken where the fields that are not known are 0. A size that no
 * version has, and a number that is none of a field's, is GPUPOOL_INVALID_ARGUMENT. Enumerators
 * keep their numbers. What each call means is said in gpupool/pool.h and gpupool/options.h; the
 * names are the same.
 *
 * Only the C++ interface has: the YAML file and the exporter; of the options, alias_reuse, trim,
 * contiguous, peers, thresholds, watched_sizes, clock, observer and out_of_memory_handler; of the
 * calls, reconfigure, would_fit, find_export, check_canaries, allocate_for_any_stream and
 * deallocate_unused; and of a failure's report, its tables, which gpupool_failure_json has.
 *
 * Thread safety: as gpupool/pool.h says: all from any thread, gpupool_destroy when no other
 * call of the pool is under way. Cost: that of the C++ call.
 */
#ifndef GPUPOOL_GPUPOOL_H_
#define GPUPOOL_GPUPOOL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Seen outside a library whose other symbols are hidden. */
#define GPUPOOL_API __attribute__((visibility("default")))

struct CUstream_st;
/* cudaStream_t, CUstream. */
typedef struct CUstream_st* gpupool_raw_stream;
typedef struct gpupool_pool gpupool_pool;
/* A stream made known once by gpupool_adopt_stream: the quick way in. */
typedef struct gpupool_stream gpupool_stream;

typedef enum gpupool_status {
  GPUPOOL_OK = 0,
  GPUPOOL_OUT_OF_MEMORY = 1,
  GPUPOOL_LIMIT_EXCEEDED = 2,
  GPUPOOL_INVALID_ARGUMENT = 3,
  GPUPOOL_BACKEND_FAILURE = 4,
  GPUPOOL_NOT_SUPPORTED = 5,
  GPUPOOL_REFUSED = 100,     /* misuse: counted, state unchanged */
  GPUPOOL_HOST_FAILURE = 101 /* no host memory, or no thread, to do it with */
} gpupool_status;

typedef enum gpupool_device_kind {
  GPUPOOL_DEVICE_CUDA = 0,
  /* No card needed: for tests. Its memory is addresses alone, which a program that reads or writes
   * them ends by SIGSEGV; its time is virtual, and goes on by what calls would have cost, so that a
   * wait takes none of the program's. */
  GPUPOOL_DEVICE_SIMULATED = 1
} gpupool_device_kind;

/* What the stream handle 0 names. It cannot be known from here how the caller was compiled. */
typedef enum gpupool_default_stream {
  GPUPOOL_DEFAULT_STREAM_LEGACY = 0,    /* the one that synchronises with all others */
  GPUPOOL_DEFAULT_STREAM_PER_THREAD = 1 /* the calling thread's own, as with
                                           CUDA_API_PER_THREAD_DEFAULT_STREAM */
} gpupool_default_stream;

typedef enum gpupool_backing {
  GPUPOOL_BACKING_VMM = 0,
  GPUPOOL_BACKING_CUDAMALLOC = 1
} gpupool_backing;

typedef enum gpupool_recycling {
  GPUPOOL_RECYCLING_OFF = 0,
  GPUPOOL_RECYCLING_PRESSURE = 1,
  GPUPOOL_RECYCLING_EAGER = 2
} gpupool_recycling;

typedef enum gpupool_policy {
  GPUPOOL_POLICY_NEVER = 0,
  GPUPOOL_POLICY_WHEN_DONE = 1,
  GPUPOOL_POLICY_WAIT = 2
} gpupool_policy;

typedef enum gpupool_on_misuse {
  GPUPOOL_ON_MISUSE_REPORT = 0,
  GPUPOOL_ON_MISUSE_ABORT = 1
} gpupool_on_misuse;

typedef enum gpupool_allocation_class {
  GPUPOOL_CLASS_NORMAL = 0,
  GPUPOOL_CLASS_CONTIGUOUS = 1
} gpupool_allocation_class;

typedef enum gpupool_misuse {
  GPUPOOL_MISUSE_DOUBLE_FREE = 0,
  GPUPOOL_MISUSE_FOREIGN_POINTER = 1,
  GPUPOOL_MISUSE_INTERIOR_POINTER = 2,
  GPUPOOL_MISUSE_WRONG_DEVICE = 3,
  GPUPOOL_MISUSE_WRONG_SIZE = 4,
  GPUPOOL_MISUSE_UNKNOWN_STREAM = 5,
  GPUPOOL_MISUSE_LEAK = 6,
  GPUPOOL_MISUSE_CANARY = 7
} gpupool_misuse;

typedef enum gpupool_miss_reason {
  GPUPOOL_MISS_SIZE = 0,
  GPUPOOL_MISS_BUDGET = 1,
  GPUPOOL_MISS_PENDING = 2,
  GPUPOOL_MISS_FRAGMENTED = 3,
  GPUPOOL_MISS_COLD = 4,
  GPUPOOL_MISS_INVALID = 5,
  GPUPOOL_MISS_DRIVER = 6
} gpupool_miss_reason;

typedef enum gpupool_block_state {
  GPUPOOL_BLOCK_LIVE = 0,
  GPUPOOL_BLOCK_CACHED = 1,
  GPUPOOL_BLOCK_PENDING = 2,
  GPUPOOL_BLOCK_FREE = 3
} gpupool_block_state;

typedef struct gpupool_misuse_report {
  uint32_t size;
  uint32_t kind;          /* gpupool_misuse */
  const void* pointer;    /* what the caller gave */
  const void* block;      /* start of the block it concerns, NULL if none */
  uint64_t block_bytes;   /* that block's requested size */
  uint64_t given;         /* the size, device or count given */
  uint32_t first_of_kind; /* log only these, count all */
} gpupool_misuse_report;

/* Called for each misuse on the thread that did it, under no lock. Must not throw. */
typedef void (*gpupool_misuse_handler)(const gpupool_misuse_report* report, void* context);

/* Filled by gpupool_options_init; then change what shall differ. Strings are copied. */
typedef struct gpupool_options {
  uint32_t size;
  uint32_t device_kind;    /* gpupool_device_kind */
  int32_t device;          /* as CUDA numbers devices in this process */
  uint32_t default_stream; /* gpupool_default_stream */
  const char* name;
  double capacity_fraction; /* of what the device has free at the start; counts where
                               capacity_bytes is 0 */
  uint64_t capacity_bytes;
  uint64_t reserve_bytes;
  uint32_t backing;   /* gpupool_backing */
  uint32_t recycling; /* gpupool_recycling */
  double slack;
  uint32_t policy;         /* gpupool_policy */
  uint32_t on_misuse;      /* gpupool_on_misuse */
  uint32_t verify_streams; /* 0 or 1 */
  uint32_t tag_count;
  const char* const* tags;
  uint64_t cache_small_bytes;
  uint64_t cache_large_bytes;
  gpupool_misuse_handler misuse_handler;
  void* misuse_context;
  uint64_t simulated_capacity_bytes; /* memory of the simulated device */
  double recycling_wait; /* share of the time that requests may wait for pages to move */
  /* DebugOptions, each 0 or 1. */
  uint32_t debug_scrub;  /* a block is zeroed before anybody else gets it */
  uint32_t debug_poison; /* filled with 0xCB when handed out and when freed; not with debug_scrub */
  uint32_t debug_canary; /* what lies behind a block is checked: GPUPOOL_MISUSE_CANARY */
  uint32_t debug_nvtx;   /* known to Compute Sanitizer; with GPUPOOL_BACKING_CUDAMALLOC alone */
  uint64_t out_of_memory_wait_ns; /* how long a request waits for pending work before it fails, up
                                     to an hour; 0: never */
} gpupool_options;

#define GPUPOOL_TAG_NONE 0xffu    /* no purpose */
#define GPUPOOL_TAG_CURRENT 0xfeu /* on a request: what gpupool_set_tag said on this thread */
#define GPUPOOL_MAX_TAGS 32u

/* Filled by gpupool_request_init. */
typedef struct gpupool_request {
  uint32_t size;
  uint32_t tag;
  uint64_t bytes;
  uint64_t alignment;
  uint32_t allocation_class; /* gpupool_allocation_class */
} gpupool_request;

/* Names a private pool, as PyTorch's MempoolId_t. {0, 0} is none. */
typedef struct gpupool_private_pool {
  uint64_t first;
  uint64_t second;
} gpupool_private_pool;

/* The figures that a program acts on, under the names of gpupool/stats.h, which defines them. Not a
 * copy of StatsV1 as it lies in memory: that has arrays by enum, whose lengths would be frozen
 * here. gpupool_visit_stats has every counter, by name. */
typedef struct gpupool_stats {
  uint32_t size;
  uint32_t tag_count;
  uint64_t requests, hits, misses, failures, fallbacks, frees, driver_calls;
  uint64_t held_bytes, live_requested_bytes, waste_bytes, cached_bytes, pending_bytes, free_bytes;
  uint64_t pinned_bytes, limit_bytes, limit_in_force_bytes;
  uint64_t device_free_bytes, device_total_bytes;
  uint64_t largest_free_block_bytes, largest_satisfiable_bytes;
  double fragmentation_ratio;
  uint64_t peak_requested_bytes, peak_held_bytes;
  uint64_t live_blocks, misuses;
  uint64_t tag_live_bytes[GPUPOOL_MAX_TAGS];
} gpupool_stats;

/* `count` is the number itself where it is a whole one, which `value` may be too coarse for. */
typedef void (*gpupool_number_visitor)(const char* name, uint64_t count, double value,
                                       void* context);

typedef struct gpupool_block {
  uint32_t size;
  uint32_t state; /* gpupool_block_state */
  uint64_t address;
  uint64_t bytes;
  uint64_t requested_bytes;
  uint64_t stream_id;
  uint32_t tag;
  uint32_t is_fallback;
  uint64_t stream_handle;     /* the cudaStream_t that names that stream, as a number */
  uint32_t has_stream_handle; /* 0: that has ended */
} gpupool_block;

/* Called under the pool's lock: must not call the pool, nor wait for a thread that may. */
typedef void (*gpupool_block_visitor)(const gpupool_block* block, void* context);

/* Why the last request of a pool failed; happened 0: none has. */
typedef struct gpupool_failure {
  uint32_t size;
  uint32_t happened;
  uint32_t error;  /* gpupool_status */
  uint32_t reason; /* gpupool_miss_reason */
  uint64_t time_ns;
  uint64_t requested_bytes, limit_bytes, held_bytes, live_requested_bytes, waste_bytes,
      cached_bytes, pending_bytes, free_bytes, largest_free_block_bytes, largest_satisfiable_bytes,
      device_free_bytes, device_total_bytes;
} gpupool_failure;

typedef enum gpupool_record_end {
  GPUPOOL_RECORD_STOPPED = 0,
  GPUPOOL_RECORD_FILE_FULL = 1,
  GPUPOOL_RECORD_BUFFER_FULL = 2
} gpupool_record_end;

typedef struct gpupool_record_report {
  uint32_t size;
  uint32_t end; /* gpupool_record_end */
  uint64_t allocations, frees, live_at_start, failed_requests, left_out, file_bytes, duration_ns;
} gpupool_record_report;

/* "0.1.0" */
GPUPOOL_API const char* gpupool_version(void);
/* Why the last call of this thread that failed did so; "" if none has. Valid until its next one. */
GPUPOOL_API const char* gpupool_last_error(void);
/* "out_of_memory"; never NULL. */
GPUPOOL_API const char* gpupool_status_name(gpupool_status status);

/* Fills the first `size` bytes with the defaults. */
GPUPOOL_API void gpupool_options_init(gpupool_options* options, size_t size);
GPUPOOL_API gpupool_status gpupool_create(const gpupool_options* options, gpupool_pool** pool);
/* NULL is valid. Blocks still live are reported as a leak. */
GPUPOOL_API void gpupool_destroy(gpupool_pool* pool);

/* The same stream gives the same reference until it is released. */
GPUPOOL_API gpupool_status gpupool_adopt_stream(gpupool_pool* pool, gpupool_raw_stream stream,
                                                gpupool_stream** adopted);
GPUPOOL_API gpupool_status gpupool_release_stream(gpupool_pool* pool, gpupool_stream* stream);

/* 0 bytes give NULL, which is valid to free. On failure *block is NULL. */
GPUPOOL_API gpupool_status gpupool_allocate(gpupool_pool* pool, size_t bytes,
                                            gpupool_raw_stream stream, void** block);
GPUPOOL_API gpupool_status gpupool_allocate_adopted(gpupool_pool* pool, size_t bytes,
                                                    gpupool_stream* stream, void** block);
GPUPOOL_API void gpupool_request_init(gpupool_request* request, size_t size);
GPUPOOL_API gpupool_status gpupool_allocate_request(gpupool_pool* pool,
                                                    const gpupool_request* request,
                                                    gpupool_raw_stream stream, void** block);
GPUPOOL_API gpupool_status gpupool_deallocate(gpupool_pool* pool, void* block,
                                              gpupool_raw_stream stream);
/* Another size than was asked for is counted and ignored. */
GPUPOOL_API gpupool_status gpupool_deallocate_sized(gpupool_pool* pool, void* block, size_t bytes,
                                                    gpupool_raw_stream stream);
GPUPOOL_API gpupool_status gpupool_deallocate_adopted(gpupool_pool* pool, void* block,
                                                      gpupool_stream* stream);
/* The requested size of a live block. */
GPUPOOL_API gpupool_status gpupool_find_size(const gpupool_pool* pool, const void* block,
                                             size_t* bytes);

/* The block is used by `stream`, too: by what that is given until the free, or until now. Where it
 * cannot be told which stream that is, GPUPOOL_REFUSED, and nobody gets the block after its free
 * before the whole device was waited for. */
GPUPOOL_API gpupool_status gpupool_record_stream(gpupool_pool* pool, void* block,
                                                 gpupool_raw_stream stream);
GPUPOOL_API gpupool_status gpupool_record_use(gpupool_pool* pool, void* block,
                                              gpupool_raw_stream stream);
/* The program has made `destination` wait for all that `source` was given so far. */
GPUPOOL_API gpupool_status gpupool_note_dependency(gpupool_pool* pool, gpupool_raw_stream source,
                                                   gpupool_raw_stream destination);

/* Graph captures, and what else wants memory of its own: from gpupool_begin_private on requests on
 * streams for which `takes` gives something else than 0 are served from the private pool, which
 * gpupool_release_private gives up once its graphs are gone. All three idempotent. `takes` is
 * called under no lock, on the thread that asks, until the end and shortly after. */
typedef int (*gpupool_stream_filter)(gpupool_raw_stream stream, void* context);
GPUPOOL_API gpupool_status gpupool_begin_private(gpupool_pool* pool, gpupool_private_pool id,
                                                 gpupool_stream_filter takes, void* context);
GPUPOOL_API gpupool_status gpupool_end_private(gpupool_pool* pool, gpupool_private_pool id);
GPUPOOL_API gpupool_status gpupool_release_private(gpupool_pool* pool, gpupool_private_pool id);
/* The same announced for one adopted stream, whose capture begins and ends. */
GPUPOOL_API gpupool_status gpupool_begin_capture(gpupool_pool* pool, gpupool_stream* stream,
                                                 gpupool_private_pool id);
GPUPOOL_API gpupool_status gpupool_end_capture(gpupool_pool* pool, gpupool_stream* stream);

/* Index of a name in the options' tags. */
GPUPOOL_API gpupool_status gpupool_find_tag(const gpupool_pool* pool, const char* name,
                                            uint32_t* tag);
/* What this thread's allocations count as from now on, in every pool; what it was before. */
GPUPOOL_API uint32_t gpupool_set_tag(uint32_t tag);

/* Fills the first `size` bytes of what is known. */
GPUPOOL_API gpupool_status gpupool_get_stats(const gpupool_pool* pool, gpupool_stats* stats,
                                             size_t size);
/* Every counter and gauge: "hits", "misses_by_reason.cold", "tag_live_bytes.weights". */
GPUPOOL_API gpupool_status gpupool_visit_stats(const gpupool_pool* pool,
                                               gpupool_number_visitor visitor, void* context);
GPUPOOL_API gpupool_status gpupool_visit_blocks(const gpupool_pool* pool,
                                                gpupool_block_visitor visitor, void* context);
/* The same into an array of `capacity` blocks of `block_size` bytes each; returns how many there
 * are in all. For callers whose visitor might wait for a thread that waits for the pool: an
 * interpreter. */
GPUPOOL_API size_t gpupool_copy_blocks(const gpupool_pool* pool, void* blocks, size_t block_size,
                                       size_t capacity);
GPUPOOL_API gpupool_status gpupool_get_failure(const gpupool_pool* pool, gpupool_failure* failure,
                                               size_t size);
/* The same for a person: writes at most `capacity` bytes with the end, and returns the length of
 * the whole text. */
GPUPOOL_API size_t gpupool_failure_text(const gpupool_pool* pool, char* text, size_t capacity);
/* And for a program: one JSON object, the exporter's /api/v1/last_failure; `happened` false where
 * no request has failed. */
GPUPOOL_API size_t gpupool_failure_json(const gpupool_pool* pool, char* text, size_t capacity);

/* The bytes that went back to the driver. */
GPUPOOL_API uint64_t gpupool_trim(gpupool_pool* pool, uint64_t target_held_bytes);
/* The most that the pool may hold from now on: a fraction of what the device has free and the pool
 * holds, where capacity_bytes is 0. Memory in use stays; see Pool::set_capacity. */
GPUPOOL_API gpupool_status gpupool_set_capacity(gpupool_pool* pool, uint64_t capacity_bytes,
                                                double capacity_fraction);
/* 1 where there is more to do. */
GPUPOOL_API int gpupool_maintain(gpupool_pool* pool, uint64_t budget_ns);
GPUPOOL_API uint64_t gpupool_drain(gpupool_pool* pool);
GPUPOOL_API void gpupool_reset_peaks(gpupool_pool* pool);

/* A trace of what the pool is asked for, as gpupool/record.h says. */
GPUPOOL_API gpupool_status gpupool_record(gpupool_pool* pool, const char* path);
GPUPOOL_API gpupool_status gpupool_stop_recording(gpupool_pool* pool, gpupool_record_report* report,
                                                  size_t size);

/* The simulated device's other side; GPUPOOL_NOT_SUPPORTED for pools on a card. Work that is
 * launched runs until it is completed. */
GPUPOOL_API gpupool_status gpupool_simulated_create_stream(gpupool_pool* pool,
                                                           gpupool_raw_stream* stream);
GPUPOOL_API gpupool_status gpupool_simulated_destroy_stream(gpupool_pool* pool,
                                                            gpupool_raw_stream stream);
GPUPOOL_API gpupool_status gpupool_simulated_launch(gpupool_pool* pool, gpupool_raw_stream stream,
                                                    const void* block, size_t bytes);
GPUPOOL_API gpupool_status gpupool_simulated_complete(gpupool_pool* pool,
                                                      gpupool_raw_stream stream);
GPUPOOL_API gpupool_status gpupool_simulated_begin_capture(gpupool_pool* pool,
                                                           gpupool_raw_stream stream);
GPUPOOL_API gpupool_status gpupool_simulated_end_capture(gpupool_pool* pool,
                                                         gpupool_raw_stream stream);

#ifdef __cplusplus
}
#endif

#endif /* GPUPOOL_GPUPOOL_H_ */
