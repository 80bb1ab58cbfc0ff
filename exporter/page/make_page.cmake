# Writes the table of page_assets.h, of the bundled page where that can be made, else of the plain
# one: cmake -DFOLDER=... -DLIVE=... -DOUTPUT=... -DNODE=... -DNPM=... -P make_page.cmake
#
# Packages are fetched once for all build trees, and again when the lock file changes; with them
# there, nothing is fetched. A machine that reaches no registry is told so by one line.
function(fetch_packages why)
  set(lock ${LIVE}/package-lock.json)
  set(installed ${LIVE}/node_modules/.package-lock.json)
  if(EXISTS ${installed} AND NOT ${lock} IS_NEWER_THAN ${installed})
    set(${why} "" PARENT_SCOPE)
    return()
  endif()
  execute_process(
    COMMAND ${NPM} ci --ignore-scripts --no-audit --no-fund --prefer-offline --fetch-retries=1
            --fetch-timeout=30000
    WORKING_DIRECTORY ${LIVE} TIMEOUT 240 RESULT_VARIABLE status OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(status EQUAL 0)
    file(TOUCH ${installed})
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
  message(STATUS "gpupool: the plain page is embedded, as the bundled one cannot be made (${problem})")
endif()
include(${FOLDER}/embed.cmake)
