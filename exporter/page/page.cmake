# The live page as a source of the exporter: sets page_source. It is dashboards/live, bundled, where
# there is npm; without it, or where bundling fails, the plain page of this folder. Nobody is asked
# to have npm: what npm brings is only ever a file that is embedded.
set(page_folder ${CMAKE_CURRENT_LIST_DIR})
set(page_source ${CMAKE_CURRENT_BINARY_DIR}/page_assets.cc)
set(live_folder ${PROJECT_SOURCE_DIR}/dashboards/live)
set(live_files build.mjs index.html package-lock.json package.json page.css
  src/api.ts src/between.ts src/charts.ts src/dom.ts src/download.ts src/events.ts src/fit.ts src/leak.ts
  src/main.ts src/map_data.ts src/map_kinds.ts src/map_layout.ts src/map_paint.ts src/map_panel.ts
  src/past.ts src/pickle.ts src/postmortem.ts src/recorded.ts src/seen.ts src/sizes.ts src/status.ts
  src/tags.ts src/text.ts src/theme.ts src/tiles.ts src/torch_snapshot.ts src/worker.ts)
list(TRANSFORM live_files PREPEND ${live_folder}/)

find_program(GPUPOOL_NODE node)
find_program(GPUPOOL_NPM npm)
mark_as_advanced(GPUPOOL_NODE GPUPOOL_NPM)
if(NOT GPUPOOL_NODE OR NOT GPUPOOL_NPM)
  message(STATUS "gpupool: no npm, so the plain page is embedded")
endif()
add_custom_command(
  OUTPUT ${page_source}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${page_folder} -DLIVE=${live_folder} -DOUTPUT=${page_source}
          -DNODE=${GPUPOOL_NODE} -DNPM=${GPUPOOL_NPM} -P ${page_folder}/make_page.cmake
  DEPENDS ${page_folder}/make_page.cmake ${page_folder}/embed.cmake ${page_folder}/index.html
          ${page_folder}/page.css ${page_folder}/page.js ${page_folder}/icon.svg ${live_files}
  COMMENT "The live page"
  VERBATIM)
