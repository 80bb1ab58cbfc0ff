// The functions that PyTorch calls.
#include <array>
#include <cstdio>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

#include "integrations/torch/plugin/gpupool_torch.h"
#include "integrations/torch/plugin/log.h"
#include "integrations/torch/plugin/runtime.h"

namespace gpupool::torch {
namespace {

/// More is no size: PyTorch documents a signed one, and a negative number arrives as this.
constexpr std::size_t kMaxBytes = std::size_t{1} << 62;

/// A block's pool, device, and the handle of its stream unless that has ended; no pool where none
/// has the block live.
struct Owner {
  gpupool_pool* pool = nullptr;
  int device = -1;
  std::optional<RawStream> stream;
};

Owner find_owner(const Runtime& runtime, const void* block, int hint) {
  Owner owner;
  const auto look = [&](int device, gpupool_pool* pool) {
    if (owner.pool != nullptr) return;
    const auto stream = pool_of(pool).find_stream(block);
    if (stream.ok()) owner = {pool, device, stream.value()};
  };
  if (gpupool_pool* const named = runtime.find(hint)) look(hint, named);
  if (owner.pool == nullptr) runtime.for_each_pool(look);
  return owner;
}

void count(std::atomic<std::uint64_t>& counter, const char* first_time) {
  if (counter.fetch_add(1, std::memory_order_relaxed) == 0) log_line(first_time);
}

/// As PyTorch writes sizes: two decimals of the largest unit up to GiB.
std::string readable_size(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text.data();
}

/// PyTorch's own words first: programs look for them.
std::string out_of_memory_text(const Pool& pool, std::size_t bytes, int device) {
  const FailureReport report = pool.last_failure();
  return "CUDA out of memory. Tried to allocate " + readable_size(bytes) + ". GPU " +
         std::to_string(device) + " has a total capacity of " +
         readable_size(report.device_total_bytes) + " of which " +
         readable_size(report.device_free_bytes) + " is free. gpupool: " + report.text();
}

Status describe(const Pool& pool, Error error, std::size_t bytes, int device) {
  if (error == Error::out_of_memory || error == Error::limit_exceeded) {
    return {error, out_of_memory_text(pool, bytes, device)};
  }
  return {error, "gpupool: " + readable_size(bytes) + " on device " + std::to_string(device) +
                     ": " + pool.last_failure().text()};
}

Result<void*, Status> allocate(std::size_t bytes, int device, RawStream stream) {
  Runtime& runtime = Runtime::instance();
  if (runtime.phase() != Phase::running) return runtime.refuse_late_call();
  if (bytes == 0) return static_cast<void*>(nullptr);
  if (bytes > kMaxBytes) {
    runtime.counters().refused_sizes.fetch_add(1, std::memory_order_relaxed);
    return Status{Error::invalid_argument, "gpupool: " + std::to_string(bytes) +
                                               " bytes are no size; as a signed number: " +
                                               std::to_string(static_cast<std::int64_t>(bytes))};
  }
  gpupool_pool* handle = runtime.find(device);
  if (handle == nullptr) [[unlikely]] {
    auto made = runtime.make(device);
    if (!made.ok()) return made.error();
    handle = made.value();
  }
  Pool& pool = pool_of(handle);
  const Result<void*> block = pool.allocate(bytes, resolve_stream(handle, stream));
  if (block.ok()) [[likely]]
    return block.value();
  return describe(pool, block.error(), bytes, device);
}

/// By what the pool knows of the block; what the caller says of it is compared. By the handle,
/// since the pool then asks whether the stream is captured just now.
void give_back(const Owner& owner, void* block, std::size_t bytes, RawStream given) {
  Counters& counters = Runtime::instance().counters();
  Pool& pool = pool_of(owner.pool);
  if (!owner.stream.has_value()) {
    // The stream ended, and its handle names another one by now, or none: then the one that
    // synchronises with all others has to do.
    if (!pool.deallocate(block, bytes, given)) pool.deallocate(block, bytes, RawStream{nullptr});
    return;
  }
  if (*owner.stream != given) [[unlikely]] {
    count(counters.wrong_streams,
          "a block was freed on another stream than it was asked for; it waits for both, and"
          " further ones are only counted");
    // Where that is no stream, the pool counts it, and holds the block back.
    pool.record_stream(block, given);
  }
  pool.deallocate(block, bytes, *owner.stream);
}

/// The named device's pool knows whether it was freed before, counts it in the metrics as well, and
/// says so; where there is none the plug-in does.
void refuse_foreign_free(void* block, int device, RawStream stream) {
  Runtime& runtime = Runtime::instance();
  if (gpupool_pool* const named = runtime.find(device)) {
    runtime.counters().foreign_frees.fetch_add(1, std::memory_order_relaxed);
    pool_of(named).deallocate(block, resolve_stream(named, stream));
    return;
  }
  count(runtime.counters().frees_without_pool,
        "an address was freed on a device without a pool, and no other pool has given it out;"
        " ignored, and further ones are only counted");
}

void deallocate(void* block, std::size_t bytes, int device, RawStream stream) {
  Runtime& runtime = Runtime::instance();
  if (runtime.phase() != Phase::running) {
    static_cast<void>(runtime.refuse_late_call());
    return;
  }
  if (block == nullptr) return;
  const Owner owner = find_owner(runtime, block, device);
  if (owner.pool == nullptr) [[unlikely]] {
    refuse_foreign_free(block, device, stream);
    return;
  }
  if (owner.device != device) [[unlikely]] {
    count(runtime.counters().wrong_devices,
          "a block was freed with another device than its own; ignored, and further ones are only"
          " counted");
  }
  // The pool takes the largest number of all, which -1 arrives as, for a size that is not told.
  const std::size_t told = bytes == ~std::size_t{0} ? bytes - 1 : bytes;
  give_back(owner, block, told, resolve_stream(owner.pool, stream));
}

void deallocate_quietly(void* block, std::size_t bytes, int device, RawStream stream) noexcept {
  try {
    deallocate(block, bytes, device, stream);
  } catch (const std::exception& error) {
    // Only the host's heap can fail here. PyTorch frees in destructors, where nothing may leave.
    log_line(std::string("a free failed: ") + error.what());
  }
}

/// nullptr also where it is too late for what would be done with it.
gpupool_pool* find_if_running(int device) noexcept {
  const Runtime& runtime = Runtime::instance();
  return runtime.phase() == Phase::running ? runtime.find(device) : nullptr;
}

[[noreturn]] void raise(const Status& status) { throw std::runtime_error(status.message); }

}  // namespace
}  // namespace gpupool::torch

using gpupool::torch::Owner;
using gpupool::torch::Phase;
using gpupool::torch::Runtime;

void* gpupool_torch_alloc(std::size_t bytes, int device, gpupool_raw_stream stream) {
  const auto block = gpupool::torch::allocate(bytes, device, stream);
  if (!block.ok()) gpupool::torch::raise(block.error());
  return block.value();
}

void gpupool_torch_free(void* block, std::size_t bytes, int device, gpupool_raw_stream stream) {
  gpupool::torch::deallocate_quietly(block, bytes, device, stream);
}

void* gpupool_torch_alloc_or_null(std::size_t bytes, int device, gpupool_raw_stream stream) {
  try {
    const auto block = gpupool::torch::allocate(bytes, device, stream);
    if (block.ok()) return block.value();
    // A full card is for PyTorch to tell, after it tried again; anything else it cannot know.
    const auto error = block.error().code;
    if (error != gpupool::Error::out_of_memory && error != gpupool::Error::limit_exceeded) {
      gpupool::torch::log_line(block.error().message);
    }
  } catch (const std::exception& error) {
    gpupool::torch::log_line(std::string("a request failed: ") + error.what());
  }
  return nullptr;
}

void gpupool_torch_free_or_ignore(void* block, std::size_t bytes, int device,
                                  gpupool_raw_stream stream) {
  gpupool::torch::deallocate_quietly(block, bytes, device, stream);
}

void gpupool_torch_init(int /*device_count*/) {
  // Pools are made one by one as devices are used: a rank that sees eight cards uses one.
}

void gpupool_torch_reset() {
  const Runtime& runtime = Runtime::instance();
  if (runtime.phase() != Phase::running) return;
  runtime.for_each_pool([](int /*device*/, gpupool_pool* handle) {
    gpupool::Pool& pool = gpupool::pool_of(handle);
    pool.drain_caches();
    pool.trim(0);
  });
}

void gpupool_torch_memory_fraction(double fraction, int device) {
  auto set = Runtime::instance().set_memory_fraction(fraction, device);
  if (!set.ok()) gpupool::torch::raise(set.error());
}

void* gpupool_torch_base_alloc(void* block, std::size_t* bytes) {
  const Runtime& runtime = Runtime::instance();
  if (bytes != nullptr) *bytes = 0;
  if (runtime.phase() != Phase::running) return block;
  runtime.for_each_pool([&](int /*device*/, gpupool_pool* handle) {
    const auto size = gpupool::pool_of(handle).find_size(block);
    if (size.ok() && bytes != nullptr) *bytes = size.value();
  });
  return block;
}

void gpupool_torch_record_stream(void* block, gpupool_raw_stream stream) {
  Runtime& runtime = Runtime::instance();
  if (block == nullptr || runtime.phase() != Phase::running) return;
  const Owner owner = gpupool::torch::find_owner(runtime, block, -1);
  if (owner.pool == nullptr) {
    gpupool::torch::count(runtime.counters().foreign_records,
                          "record_stream of an address that no pool has given out; ignored, and"
                          " further ones are only counted");
    return;
  }
  const auto given = gpupool::resolve_stream(owner.pool, stream);
  // Its own stream's order is kept anyhow.
  if (owner.stream == given) return;
  gpupool::Pool& pool = gpupool::pool_of(owner.pool);
  // One that another thread has freed meanwhile needs nobody's word.
  if (pool.record_stream(block, given) || !pool.find_size(block).ok()) return;
  gpupool::torch::raise({gpupool::Error::backend_failure,
                         "gpupool: record_stream of a stream that the driver does not know; after"
                         " its free the block waits for the whole device"});
}

void gpupool_torch_begin_allocate_to_pool(int device, gpupool_torch_pool_id id,
                                          std::function<bool(gpupool_raw_stream)> takes) {
  const auto pool = Runtime::instance().make(device);
  if (!pool.ok()) gpupool::torch::raise(pool.error());
  // PyTorch's asks the driver, and throws what that refuses. A free must not be lost for it.
  auto takes_or_not = [takes = std::move(takes)](gpupool_raw_stream stream) {
    try {
      return takes(stream);
    } catch (const std::exception& error) {
      static std::atomic<bool> has_said{false};
      if (!has_said.exchange(true)) {
        gpupool::torch::log_line(std::string("whether a graph captures a stream cannot be told: ") +
                                 error.what());
      }
      return false;
    }
  };
  const auto begun = gpupool::pool_of(pool.value())
                         .begin_allocate_to_pool({id.first, id.second}, std::move(takes_or_not));
  if (!begun.ok()) gpupool::torch::raise(begun.error());
  Runtime::instance().pool_uses().begin(device, id);
}

void gpupool_torch_end_allocate_to_pool(int device, gpupool_torch_pool_id id) {
  gpupool_pool* const pool = gpupool::torch::find_if_running(device);
  if (pool == nullptr) return;
  const auto ended = gpupool::pool_of(pool).end_allocate_to_pool({id.first, id.second});
  if (!ended.ok()) gpupool::torch::raise(ended.error());
}

void gpupool_torch_release_pool(int device, gpupool_torch_pool_id id) {
  gpupool_pool* const pool = gpupool::torch::find_if_running(device);
  if (pool == nullptr) return;
  // PyTorch calls this when a graph is destroyed, where nothing may be thrown.
  if (!Runtime::instance().pool_uses().release(device, id)) return;
  const auto released = gpupool::pool_of(pool).release_pool({id.first, id.second});
  if (!released.ok()) gpupool::torch::log_line(released.error().message);
}
