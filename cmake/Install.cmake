# What `cmake --install` puts where, so that find_package(composer CONFIG) gives composer::composer.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/composer)

# The build tree gets the folders of libtorch, OpenMP and CUDA by itself; the installed library needs them said.
set_target_properties(composer PROPERTIES INSTALL_RPATH "$ORIGIN;${LIBTORCH_RPATH}")
install(TARGETS composer EXPORT composerTargets FILE_SET HEADERS)
if(TARGET composer_nccl) # loaded by the library when it is asked for, so it belongs beside it
  set_target_properties(composer_nccl PROPERTIES INSTALL_RPATH "$ORIGIN;${LIBTORCH_RPATH}")
  install(TARGETS composer_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET composer_program)
  set_target_properties(composer_program PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${LIBTORCH_RPATH}")
  install(TARGETS composer_program)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
set(COMPOSER_HAS_CUDA OFF)
if(TARGET libtorch::cuda)
  set(COMPOSER_HAS_CUDA ON)
endif()
install(EXPORT composerTargets NAMESPACE composer:: DESTINATION ${_package})
configure_package_config_file(cmake/composerConfig.cmake.in ${PROJECT_BINARY_DIR}/composerConfig.cmake
  INSTALL_DESTINATION ${_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/composerConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/composerConfig.cmake ${PROJECT_BINARY_DIR}/composerConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/LibTorch.cmake ${PROJECT_SOURCE_DIR}/cmake/Readers.cmake DESTINATION ${_package})
