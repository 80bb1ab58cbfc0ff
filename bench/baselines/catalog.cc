#include "bench/baselines/catalog.h"

#include <algorithm>

#include "bench/baselines/buddy.h"
#include "bench/baselines/driver_only.h"
#include "bench/baselines/free_list.h"
#include "bench/baselines/pool_system.h"
#include "bench/baselines/size_classes.h"

namespace gpupool::baselines {
namespace {

using Created = Result<std::unique_ptr<AllocationSystem>, Status>;
using Streams = std::vector<RawStream>;

Created create_driver_only(Backend& backend, const Streams&) {
  return std::unique_ptr<AllocationSystem>(std::make_unique<DriverOnly>(backend));
}

template <class System>
Created create_with_lists(Backend& backend, const Streams& streams) {
  return std::unique_ptr<AllocationSystem>(std::make_unique<System>(backend, streams.size()));
}

}  // namespace

const std::vector<CatalogEntry>& catalog() {
  static const std::vector<CatalogEntry> entries = {
      {"gpupool", "this pool, everything on", true, PoolSystem::create},
      {"driver", "no pool: cudaMalloc and cudaFree each time", false, create_driver_only},
      {"free-list", "best fit in a free list, neighbours joined", false,
       create_with_lists<FreeList>},
      {"buddy", "binary buddy system", false, create_with_lists<Buddy>},
      {"size-classes", "a free list a size class, never cut or joined", false,
       create_with_lists<SizeClasses>},
  };
  return entries;
}

const CatalogEntry* find_system(std::string_view name) {
  const auto& all = catalog();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [name](const CatalogEntry& entry) { return entry.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace gpupool::baselines
