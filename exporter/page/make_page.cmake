# Writes the table of page_assets.h, of the bundled page where that can be made, else of the plain
# one: cmake -DFOLDER=... -DLIVE=... -DOUTPUT=... -DNODE=... -DNPM=... -P make_page.cmake
#
# Packages are fetched once for all build trees, and again when the lock file changes; with them
# there, nothing is fetched. A machine that reaches no registry is told so by one line.
function(fetch_packages why)
  # By content: a checkout makes files newer that are the same.
  file(SHA256 ${LIVE}/package-lock.json wanted)
  set(stamp ${LIVE}/node_modules/.gpupool-fetched)
  if(EXISTS ${stamp})
    file(READ ${stamp} fetched)
    if(fetched STREQUAL wanted)
      set(${why} "" PARENT_SCOPE)
      return()
    endif()
  endif()
  execute_process(
    COMMAND ${NPM} ci --ignore-scripts --no-audit --no-fund --prefer-offline --fetch-retries=1
            --fetch-timeout=30000
    WORKING_DIRECTORY ${LIVE} TIMEOUT 240 RESULT_VARIABLE status OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(status EQUAL 0)
    file(WRITE ${stamp} ${wanted})
    set(${why} "" PARENT_SCOPE)
  else()
    string(REGEX MATCH "npm (ERR!|error) [^\n]*" line "${output}")
    set(${why} "npm ci: ${line}${status}" PARENT_SCOPE)
  endif()
endfunction()

function(bundle why)
  execute_process(COMMAND ${NODE} ${LIVE}/build.mjs ${OUTPUT} TIMEOUT 60 RESULT_VARIABLE status
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status EQUAL 0)
    set(${why} "" PARENT_SCOPE)
  else()
    string(REGEX MATCH "[^\n]*[Ee]rror[^\n]*" line "${output}")
    set(${why} "bundling: ${line}" PARENT_SCOPE)
  endif()
endfunction()

set(problem "no npm")
if(NODE AND NPM)
  # Two build trees must not fetch into one folder at the same time.
  file(LOCK ${LIVE} DIRECTORY GUARD PROCESS TIMEOUT 300 RESULT_VARIABLE problem)
  if(problem EQUAL 0)
    fetch_packages(problem)
  endif()
  if(problem STREQUAL "")
    bundle(problem)
  endif()
  if(problem STREQUAL "")
    return()
  endif()
endif()
message(STATUS "gpupool: the plain page is embedded, as the live one cannot be made (${problem})")
include(${FOLDER}/embed.cmake)
