// The files of the live page, as bytes in the program: nothing is read from disk, nothing comes
// from anywhere else. The table is generated when building: from dashboards/live where there is npm
// to bundle it, else from the plain page in this folder.
//
// Thread safety: constant data. Cost: none.
#ifndef GPUPOOL_EXPORTER_PAGE_PAGE_ASSETS_H_
#define GPUPOOL_EXPORTER_PAGE_PAGE_ASSETS_H_

#include <span>
#include <string_view>

namespace gpupool::internal {

struct PageAsset {
  std::string_view path;  // as it is asked for
  std::string_view content_type;
  std::string_view body;
  std::string_view packed_body = {};  // the same in gzip's format; empty: not made
};

std::span<const PageAsset> page_assets();

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_PAGE_PAGE_ASSETS_H_
