# Install rules: three libraries as components of one package, the program, and what surrounds them.
#   PREFIX/include/gpupool, lib/, lib/cmake/gpupool, bin/gpupool, share/gpupool/...
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(gpupool_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gpupool)
set(gpupool_share_dir ${CMAKE_INSTALL_DATADIR}/gpupool)

# One export set a component, so that a program which links the allocator alone needs neither
# prometheus-cpp nor CivetWeb on its machine.
function(gpupool_install_component target component)
  install(TARGETS ${target} EXPORT gpupool-${component}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          ${ARGN})
  install(EXPORT gpupool-${component} NAMESPACE gpupool:: DESTINATION ${gpupool_package_dir}
          FILE gpupool-${component}-targets.cmake)
endfunction()

gpupool_install_component(gpupool_allocator allocator
  FILE_SET cccl_headers DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET gpupool_config)
  gpupool_install_component(gpupool_config config)
endif()
if(GPUPOOL_EXPORTER)
  gpupool_install_component(gpupool_exporter exporter)
endif()

configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/gpupool-config.cmake.in ${PROJECT_BINARY_DIR}/gpupool-config.cmake
  INSTALL_DESTINATION ${gpupool_package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 every minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gpupool-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gpupool-config.cmake
              ${PROJECT_BINARY_DIR}/gpupool-config-version.cmake
        DESTINATION ${gpupool_package_dir})

if(BUILD_SHARED_LIBS)
  # What is installed finds its libraries wherever the prefix is.
  foreach(target gpupool_allocator gpupool_config gpupool_exporter gpupool)
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES
                            INSTALL_RPATH "$ORIGIN;$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    endif()
  endforeach()
endif()
if(TARGET gpupool_torch)
  # Who builds the program alone may install it all the same.
  install(TARGETS gpupool_torch LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
  install(CODE "if(NOT EXISTS \"$<TARGET_FILE:gpupool_torch>\")
    message(STATUS \"Not built, so not installed: the PyTorch plug-in (target gpupool_torch)\")
  endif()")
endif()
if(TARGET gpupool)
  install(TARGETS gpupool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY configs dashboards DESTINATION ${gpupool_share_dir}
        PATTERN "__pycache__" EXCLUDE
        # The page travels in the program; pictures are made in a checkout.
        REGEX "/dashboards/(live|pictures)$" EXCLUDE)
install(DIRECTORY tools/data/ DESTINATION ${gpupool_share_dir}/traces)
install(DIRECTORY docs/runbooks DESTINATION ${gpupool_share_dir})
