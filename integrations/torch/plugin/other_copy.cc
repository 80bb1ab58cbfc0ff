#include "integrations/torch/plugin/other_copy.h"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <vector>

#include "integrations/torch/plugin/gpupool_torch.h"

namespace gpupool::torch {
namespace {

using IsInUse = int (*)();

int collect(dl_phdr_info* info, std::size_t /*size*/, void* context) {
  if (info->dlpi_name != nullptr && *info->dlpi_name != '\0') {
    static_cast<std::vector<std::string>*>(context)->emplace_back(info->dlpi_name);
  }
  return 0;
}

}  // namespace

std::string find_other_copy_in_use() {
  // The names first: the loader's lock is held during the walk, and dlopen takes it.
  std::vector<std::string> loaded;
  dl_iterate_phdr(collect, &loaded);
  for (const std::string& path : loaded) {
    void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_LOCAL);
    if (library == nullptr) continue;
    void* const found = dlsym(library, "gpupool_torch_is_in_use");
    dlclose(library);  // it stays loaded: this only takes back what the line above counted
    if (found == nullptr) continue;
    const auto is_in_use = reinterpret_cast<IsInUse>(found);
    // dlsym also finds the symbol of what a library was linked with, and so our own.
    if (is_in_use != &gpupool_torch_is_in_use && is_in_use() != 0) return path;
  }
  return {};
}

}  // namespace gpupool::torch
