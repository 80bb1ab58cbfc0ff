// The functions that the Python helper calls.
#include <algorithm>
#include <cstring>
#include <string>

#include "integrations/torch/plugin/gpupool_torch.h"
#include "integrations/torch/plugin/runtime.h"

using gpupool::torch::Runtime;

namespace gpupool::torch {
namespace {

// gpupool_last_error() has the text of the C interface alone; this one is beside it.
gpupool_status tell(const Status& status) {
  set_last_error(status.message);
  return static_cast<gpupool_status>(status.code);
}

}  // namespace
}  // namespace gpupool::torch

gpupool_status gpupool_torch_configure(const char* path) {
  try {
    const auto configured = Runtime::instance().configure(path);
    return configured.ok() ? GPUPOOL_OK : gpupool::torch::tell(configured.error());
  } catch (const std::exception& error) {
    return gpupool::torch::tell({gpupool::Error::backend_failure, error.what()});
  }
}

gpupool_pool* gpupool_torch_pool(int device, int create) {
  Runtime& runtime = Runtime::instance();
  try {
    if (runtime.phase() != gpupool::torch::Phase::running) {
      gpupool::torch::tell(runtime.refuse_late_call());
      return nullptr;
    }
    if (create == 0) {
      gpupool_pool* const pool = runtime.find(device);
      if (pool == nullptr) {
        gpupool::torch::tell({gpupool::Error::invalid_argument,
                              "gpupool: device " + std::to_string(device) +
                                  " has no pool yet: nothing was asked for on it"});
      }
      return pool;
    }
    const auto made = runtime.make(device);
    if (made.ok()) return made.value();
    gpupool::torch::tell(made.error());
  } catch (const std::exception& error) {
    gpupool::torch::tell({gpupool::Error::backend_failure, error.what()});
  }
  return nullptr;
}

gpupool_status gpupool_torch_find_tag(const char* name, std::uint32_t* tag) {
  try {
    const auto found = Runtime::instance().find_tag(name);
    if (!found.ok()) return gpupool::torch::tell(found.error());
    *tag = found.value().index();
    return GPUPOOL_OK;
  } catch (const std::exception& error) {
    return gpupool::torch::tell({gpupool::Error::backend_failure, error.what()});
  }
}

std::size_t gpupool_torch_url(int device, char* text, std::size_t capacity) {
  const Runtime& runtime = Runtime::instance();
  const std::string url =
      runtime.phase() == gpupool::torch::Phase::running ? runtime.url(device) : std::string();
  if (text != nullptr && capacity > 0) text[url.copy(text, capacity - 1)] = '\0';
  return url.size();
}

void gpupool_torch_get_counters(gpupool_torch_counters* counters, std::size_t size) {
  if (counters == nullptr || size < sizeof counters->size) return;
  Runtime& runtime = Runtime::instance();
  const gpupool::torch::Counters& from = runtime.counters();
  gpupool_torch_counters to{};
  to.size = static_cast<std::uint32_t>(std::min(size, sizeof to));
  runtime.for_each_pool([&](int /*device*/, gpupool_pool* /*pool*/) { ++to.devices; });
  to.refused_sizes = from.refused_sizes.load();
  to.wrong_devices = from.wrong_devices.load();
  to.wrong_streams = from.wrong_streams.load();
  to.foreign_frees =
      from.foreign_frees.load() + from.frees_without_pool.load() + from.foreign_records.load();
  to.calls_after_fork = from.calls_after_fork.load();
  to.calls_at_exit = from.calls_at_exit.load();
  std::memset(static_cast<void*>(counters), 0, size);
  std::memcpy(static_cast<void*>(counters), &to, to.size);
}

int gpupool_torch_is_in_use() { return Runtime::instance().is_in_use() ? 1 : 0; }
