# Helpers that give every target of ours the same habits. Nothing here is forced on consumers.
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    find_program(GPUPOOL_CCACHE ccache)
    mark_as_advanced(GPUPOOL_CCACHE)
    if(GPUPOOL_CCACHE)
      set(CMAKE_CXX_COMPILER_LAUNCHER ${GPUPOOL_CCACHE})
    endif()
  endif()
endif()

# C++20, warnings (errors only where the preset sets GPUPOOL_WERROR), no compiler extensions.
function(gpupool_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  if(PROJECT_IS_TOP_LEVEL)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wundef -Wshadow
                           -Wno-missing-field-initializers)  # designated initialisers are idiom
    if(GPUPOOL_WERROR)
      target_compile_options(${target} PRIVATE -Werror)
      if(CMAKE_CXX_FLAGS MATCHES "fsanitize" AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
        # What a sanitizer adds makes GCC see it within the standard library itself.
        target_compile_options(${target} PRIVATE -Wno-error=maybe-uninitialized)
      endif()
    endif()
  endif()
endfunction()
