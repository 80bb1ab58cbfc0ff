// What libgpupool_torch.so offers, beside gpupool.h, which it has as a whole: the functions that
// PyTorch's CUDAPluggableAllocator is given by name or by address, and those of the Python helper.
// The names are plain C; the hooks take the C++ types that PyTorch passes.
//
//   gpupool_torch_alloc, _free          for change_current_allocator: throws, as PyTorch turns
//                                       no null pointer into an error there
//   gpupool_torch_alloc_or_null, ...    for torch.cuda.MemPool: null, upon which PyTorch frees
//                                       what it has cached and tries again
//
// Invariants: one pool a device, made at the first request for it; only gpupool_torch_alloc and the
// hooks that PyTorch calls where an error can be raised throw, and only std::runtime_error, which
// crosses because libstdc++ is the process's own. A free never throws: PyTorch calls it from
// destructors.
// Thread safety: all from any thread. Cost: a request a Pool::allocate with a raw stream; a free
// one look under the pool's lock more.
#ifndef GPUPOOL_INTEGRATIONS_TORCH_GPUPOOL_TORCH_H_
#define GPUPOOL_INTEGRATIONS_TORCH_GPUPOOL_TORCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "gpupool/gpupool.h"

/// c10::MempoolId_t.
using gpupool_torch_pool_id = std::pair<unsigned long long, unsigned long long>;

/// What the plug-in itself counts, all devices together. Grows at its end only.
struct gpupool_torch_counters {
  std::uint32_t size;
  std::uint32_t devices;        // that have a pool
  std::uint64_t refused_sizes;  // beyond 2^62: negative where the caller counted signed
  std::uint64_t wrong_devices;  // a free that named another device than the block's
  std::uint64_t wrong_streams;  // a free that named another stream than the block's
  std::uint64_t foreign_frees;  // of what no pool of ours has live
  std::uint64_t calls_after_fork;
  std::uint64_t calls_at_exit;
};

extern "C" {

GPUPOOL_API void* gpupool_torch_alloc(std::size_t bytes, int device, gpupool_raw_stream stream);
GPUPOOL_API void gpupool_torch_free(void* block, std::size_t bytes, int device,
                                    gpupool_raw_stream stream);
GPUPOOL_API void* gpupool_torch_alloc_or_null(std::size_t bytes, int device,
                                              gpupool_raw_stream stream);
GPUPOOL_API void gpupool_torch_free_or_ignore(void* block, std::size_t bytes, int device,
                                              gpupool_raw_stream stream);

// The hooks, named as the functions that set them.
GPUPOOL_API void gpupool_torch_init(int device_count);
/// torch.cuda.empty_cache().
GPUPOOL_API void gpupool_torch_reset();
/// torch.cuda.set_per_process_memory_fraction(), at any time. Throws where it is less than the
/// configuration's reserve, or than a page.
GPUPOOL_API void gpupool_torch_memory_fraction(double fraction, int device);
/// The start and the size of the block; 0 for what is none of ours.
GPUPOOL_API void* gpupool_torch_base_alloc(void* block, std::size_t* bytes);
GPUPOOL_API void gpupool_torch_record_stream(void* block, gpupool_raw_stream stream);
/// Of a graph capture: what is asked for on streams that `takes` takes comes from a private pool,
/// and stays where it is until the last graph that uses it is gone.
GPUPOOL_API void gpupool_torch_begin_allocate_to_pool(
    int device, gpupool_torch_pool_id id, std::function<bool(gpupool_raw_stream)> takes);
GPUPOOL_API void gpupool_torch_end_allocate_to_pool(int device, gpupool_torch_pool_id id);
GPUPOOL_API void gpupool_torch_release_pool(int device, gpupool_torch_pool_id id);

// For the Python helper.
/// Names the YAML file, nullptr for the defaults; before the first request, or with the same file.
/// What is wrong is in gpupool_last_error().
GPUPOOL_API gpupool_status gpupool_torch_configure(const char* path);
/// The device's pool, made where `create` is not 0; nullptr where there is none, with the reason in
/// gpupool_last_error().
GPUPOOL_API gpupool_pool* gpupool_torch_pool(int device, int create);
/// Index of a name in the configuration's tags, for gpupool_set_tag.
GPUPOOL_API gpupool_status gpupool_torch_find_tag(const char* name, std::uint32_t* tag);
/// "http://127.0.0.1:10064/", empty where the device's pool is not served: as snprintf.
GPUPOOL_API std::size_t gpupool_torch_url(int device, char* text, std::size_t capacity);
GPUPOOL_API void gpupool_torch_get_counters(gpupool_torch_counters* counters, std::size_t size);
/// 1 from the first configuration or request on: another copy of the library asks.
GPUPOOL_API int gpupool_torch_is_in_use();

}  // extern "C"

#endif  // GPUPOOL_INTEGRATIONS_TORCH_GPUPOOL_TORCH_H_
