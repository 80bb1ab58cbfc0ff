// The systems that are compared, by name.
//
// Thread safety: plain functions; the catalog never changes. Cost: a handful of entries.
#ifndef GPUPOOL_BENCH_BASELINES_CATALOG_H_
#define GPUPOOL_BENCH_BASELINES_CATALOG_H_

#include <memory>
#include <string_view>
#include <vector>

#include "bench/baselines/allocation_system.h"
#include "gpupool/backend.h"

namespace gpupool::baselines {

struct CatalogEntry {
  std::string_view name;     // as the command line has it
  std::string_view summary;  // a few words for a person
  bool is_ours = false;
  Result<std::unique_ptr<AllocationSystem>, Status> (*create)(
      Backend& backend, const std::vector<RawStream>& streams) = nullptr;
};

/// Ours first, then the others by what they hold on to.
const std::vector<CatalogEntry>& catalog();
/// nullptr where there is none of this name.
const CatalogEntry* find_system(std::string_view name);

}  // namespace gpupool::baselines

#endif  // GPUPOOL_BENCH_BASELINES_CATALOG_H_
