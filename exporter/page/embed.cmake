# Writes the table of page_assets.h: cmake -DFOLDER=... -DOUTPUT=... -P embed.cmake
set(paths / /page.css /page.js /icon.svg)
set(files index.html page.css page.js icon.svg)
set(types "text/html" "text/css" "text/javascript" "image/svg+xml")

set(rows "")
foreach(path file type IN ZIP_LISTS paths files types)
  file(READ "${FOLDER}/${file}" body)
  string(APPEND rows "    {\"${path}\", \"${type}; charset=utf-8\",\n     R\"__asset__(${body})__asset__\"sv},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Generated from the files of the page.
#include \"exporter/page/page_assets.h\"

namespace gpupool::internal {
namespace {

using namespace std::string_view_literals;

constexpr PageAsset kAssets[] = {
${rows}};

}  // namespace

std::span<const PageAsset> page_assets() { return kAssets; }

}  // namespace gpupool::internal
")
