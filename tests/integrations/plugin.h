// The plug-in as PyTorch uses it: loaded by path, called through pointers. GPUPOOL_TORCH_PLUGIN
// names the file; the device is the simulated one.
//
// A process has one plug-in with one configuration and its pools, so that tests of one program take
// a device each, or run in a child (EXPECT_EXIT).
#ifndef GPUPOOL_TESTS_INTEGRATIONS_PLUGIN_H_
#define GPUPOOL_TESTS_INTEGRATIONS_PLUGIN_H_

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "integrations/torch/plugin/gpupool_torch.h"

namespace gpupool::testing {

class Plugin {
 public:
  explicit Plugin(const std::string& path = GPUPOOL_TORCH_PLUGIN) {
    setenv("GPUPOOL_DEVICE", "simulated", 1);
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::abort();
    }
  }

  template <class Function>
  Function* find(const char* name) const {
    void* const found = dlsym(library_, name);
    if (found == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::abort();
    }
    return reinterpret_cast<Function*>(found);
  }

  void* alloc(std::size_t bytes, int device, gpupool_raw_stream stream = nullptr) const {
    return find<decltype(gpupool_torch_alloc)>("gpupool_torch_alloc")(bytes, device, stream);
  }
  void* alloc_or_null(std::size_t bytes, int device) const {
    return find<decltype(gpupool_torch_alloc_or_null)>("gpupool_torch_alloc_or_null")(bytes, device,
                                                                                      nullptr);
  }
  void free(void* block, std::size_t bytes, int device, gpupool_raw_stream stream = nullptr) const {
    find<decltype(gpupool_torch_free)>("gpupool_torch_free")(block, bytes, device, stream);
  }
  void record_stream(void* block, gpupool_raw_stream stream) const {
    find<decltype(gpupool_torch_record_stream)>("gpupool_torch_record_stream")(block, stream);
  }
  gpupool_status configure(const char* path) const {
    return find<decltype(gpupool_torch_configure)>("gpupool_torch_configure")(path);
  }
  std::string last_error() const {
    return find<decltype(gpupool_last_error)>("gpupool_last_error")();
  }
  gpupool_pool* pool(int device, bool create = true) const {
    return find<decltype(gpupool_torch_pool)>("gpupool_torch_pool")(device, create ? 1 : 0);
  }
  gpupool_stats stats(int device) const {
    gpupool_stats stats{};
    find<decltype(gpupool_get_stats)>("gpupool_get_stats")(pool(device), &stats, sizeof stats);
    return stats;
  }
  /// Every number of the device's pool, by name.
  std::map<std::string, std::uint64_t> numbers(int device) const {
    std::map<std::string, std::uint64_t> numbers;
    const auto keep = [](const char* name, std::uint64_t count, double /*value*/, void* context) {
      (*static_cast<std::map<std::string, std::uint64_t>*>(context))[name] = count;
    };
    find<decltype(gpupool_visit_stats)>("gpupool_visit_stats")(pool(device), keep, &numbers);
    return numbers;
  }
  gpupool_torch_counters counters() const {
    gpupool_torch_counters counters{};
    find<decltype(gpupool_torch_get_counters)>("gpupool_torch_get_counters")(&counters,
                                                                             sizeof counters);
    return counters;
  }

  // The simulated device's other side.
  gpupool_raw_stream make_stream(int device) const {
    gpupool_raw_stream stream = nullptr;
    find<decltype(gpupool_simulated_create_stream)>("gpupool_simulated_create_stream")(pool(device),
                                                                                       &stream);
    return stream;
  }
  void launch(int device, gpupool_raw_stream stream, const void* block, std::size_t bytes) const {
    find<decltype(gpupool_simulated_launch)>("gpupool_simulated_launch")(pool(device), stream,
                                                                         block, bytes);
  }
  void complete(int device, gpupool_raw_stream stream) const {
    find<decltype(gpupool_simulated_complete)>("gpupool_simulated_complete")(pool(device), stream);
    find<decltype(gpupool_maintain)>("gpupool_maintain")(pool(device), 1'000'000'000);
  }

 private:
  void* library_ = nullptr;
};

}  // namespace gpupool::testing

#endif  // GPUPOOL_TESTS_INTEGRATIONS_PLUGIN_H_
