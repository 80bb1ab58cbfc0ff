// gpupool.h: how a pool begins and ends.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "c_api/handle.h"
#include "gpupool/cuda_backend.h"
#include "gpupool/options.h"

namespace gpupool {
namespace internal {
namespace {

gpupool_options default_options() {
  const PoolOptions defaults;
  gpupool_options options{};
  options.size = sizeof options;
  options.device_kind = GPUPOOL_DEVICE_CUDA;
  options.default_stream = GPUPOOL_DEFAULT_STREAM_LEGACY;
  options.name = "default";
  options.capacity_fraction = 1.0;
  options.reserve_bytes = defaults.reserve_bytes;
  options.backing = static_cast<std::uint32_t>(defaults.backing);
  options.recycling = static_cast<std::uint32_t>(defaults.runtime.recycling);
  options.slack = defaults.runtime.slack;
  options.recycling_wait = defaults.runtime.recycling_wait;
  options.policy = static_cast<std::uint32_t>(defaults.runtime.policy);
  options.on_misuse = static_cast<std::uint32_t>(defaults.on_misuse);
  static const char* const kTags[] = {"weights", "gradients", "activations", "optimizer",
                                      "communication"};
  options.tags = kTags;
  options.tag_count = std::size(kTags);
  options.cache_small_bytes = defaults.cache_small_bytes;
  options.cache_large_bytes = defaults.cache_large_bytes;
  options.simulated_capacity_bytes = SimulatedDeviceOptions().capacity_bytes;
  options.debug_scrub = defaults.debug.scrub ? 1 : 0;
  options.debug_poison = defaults.debug.poison ? 1 : 0;
  options.debug_canary = defaults.debug.canary ? 1 : 0;
  options.debug_nvtx = defaults.debug.nvtx ? 1 : 0;
  options.out_of_memory_wait_ns = defaults.runtime.out_of_memory.wait_ns;
  return options;
}

/// `value` as a number up to `last`; the name goes into `problem` where it is none.
template <class Enum>
Enum checked(std::uint32_t value, Enum last, const char* name, const char*& problem) {
  if (value > static_cast<std::uint32_t>(last) && problem == nullptr) problem = name;
  return static_cast<Enum>(value);
}

bool checked_switch(std::uint32_t value, const char* name, const char*& problem) {
  return checked(value, std::uint32_t{1}, name, problem) != 0;
}

std::function<void(const MisuseReport&)> handler_of(const gpupool_options& options) {
  if (options.misuse_handler == nullptr) return nullptr;
  return [call = options.misuse_handler,
          context = options.misuse_context](const MisuseReport& report) {
    gpupool_misuse_report given{};
    given.size = sizeof given;
    given.kind = static_cast<std::uint32_t>(report.kind);
    given.pointer = report.pointer;
    given.block = report.block;
    given.block_bytes = report.block_bytes;
    given.given = report.given;
    given.first_of_kind = report.first_of_kind ? 1 : 0;
    call(&given, context);
  };
}

Result<PoolOptions, Status> pool_options_of(const gpupool_options& options) {
  const char* problem = nullptr;
  PoolOptions result;
  result.name = options.name == nullptr ? "" : options.name;
  if (options.capacity_bytes > 0) {
    result.capacity = options.capacity_bytes;
  } else {
    result.capacity = options.capacity_fraction;
  }
  result.reserve_bytes = options.reserve_bytes;
  result.backing = checked(options.backing, Backing::cudamalloc, "backing", problem);
  result.runtime.recycling = checked(options.recycling, Recycling::eager, "recycling", problem);
  result.runtime.slack = options.slack;
  result.runtime.recycling_wait = options.recycling_wait;
  result.runtime.policy = checked(options.policy, CrossStreamPolicy::wait, "policy", problem);
  result.on_misuse = checked(options.on_misuse, OnMisuse::abort, "on_misuse", problem);
  result.verify_streams = checked_switch(options.verify_streams, "verify_streams", problem);
  result.cache_small_bytes = options.cache_small_bytes;
  result.cache_large_bytes = options.cache_large_bytes;
  result.misuse_handler = handler_of(options);
  result.debug.scrub = checked_switch(options.debug_scrub, "debug_scrub", problem);
  result.debug.poison = checked_switch(options.debug_poison, "debug_poison", problem);
  result.debug.canary = checked_switch(options.debug_canary, "debug_canary", problem);
  result.debug.nvtx = checked_switch(options.debug_nvtx, "debug_nvtx", problem);
  result.runtime.out_of_memory.wait_ns = options.out_of_memory_wait_ns;
  if (options.tag_count > kMaxTags || (options.tag_count > 0 && options.tags == nullptr)) {
    return Status{Error::invalid_argument, "tags: at most 32 names, and a list of them"};
  }
  result.tags.clear();
  for (std::uint32_t i = 0; i < options.tag_count; ++i) {
    if (options.tags[i] == nullptr) return Status{Error::invalid_argument, "tags: a name is NULL"};
    result.tags.emplace_back(options.tags[i]);
  }
  if (problem != nullptr) {
    return Status{Error::invalid_argument,
                  std::string(problem) + " is none of the numbers in gpupool.h"};
  }
  return result;
}

Result<std::unique_ptr<Backend>, Status> open_device(const gpupool_options& options) {
  if (options.device_kind == GPUPOOL_DEVICE_CUDA) return open_cuda_backend(options.device);
  if (options.device_kind != GPUPOOL_DEVICE_SIMULATED) {
    return Status{Error::invalid_argument, "device_kind is none of the numbers in gpupool.h"};
  }
  SimulatedDeviceOptions device;
  device.capacity_bytes = options.simulated_capacity_bytes;
  device.ordinal = options.device;
  return std::unique_ptr<Backend>(std::make_unique<SimulatedBackend>(std::move(device)));
}

gpupool_status create(const gpupool_options& options, gpupool_pool** pool) {
  if (options.default_stream > GPUPOOL_DEFAULT_STREAM_PER_THREAD) {
    return fail(GPUPOOL_INVALID_ARGUMENT, "default_stream is none of the numbers in gpupool.h");
  }
  auto wanted = pool_options_of(options);
  if (!wanted.ok()) return fail(wanted.error());
  auto backend = open_device(options);
  if (!backend.ok()) return fail(backend.error());
  auto made = Pool::create(*backend.value(), std::move(wanted).value());
  if (!made.ok()) return fail(made.error());
  *pool = make_c_handle(std::move(backend).value(), std::move(made).value(),
                        static_cast<DefaultStream>(options.default_stream));
  return GPUPOOL_OK;
}

}  // namespace
}  // namespace internal
}  // namespace gpupool

using gpupool::internal::guarded;

const char* gpupool_version(void) { return GPUPOOL_VERSION; }

void gpupool_options_init(gpupool_options* options, size_t size) {
  if (options == nullptr || size < sizeof options->size) return;
  gpupool::internal::copy_out(gpupool::internal::default_options(), options, size);
}

gpupool_status gpupool_create(const gpupool_options* options, gpupool_pool** pool) {
  if (pool == nullptr) return gpupool::internal::null_argument("pool is NULL");
  *pool = nullptr;
  return guarded([&] {
    gpupool_options wanted = gpupool::internal::default_options();
    if (options != nullptr) {
      const auto least = offsetof(gpupool_options, name);
      const char* const problem = gpupool::internal::copy_in(options, least, wanted);
      if (problem != nullptr) {
        return gpupool::internal::fail(GPUPOOL_INVALID_ARGUMENT,
                                       std::string("gpupool_options: ") + problem);
      }
    }
    return gpupool::internal::create(wanted, pool);
  });
}

void gpupool_destroy(gpupool_pool* pool) { delete pool; }
