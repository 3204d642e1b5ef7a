# What makes the edit-build-test round short (ccache, lld), and what all our targets share (warnings, sanitizers).
find_program(COMPOSER_CCACHE ccache)
if(COMPOSER_CCACHE AND COMPOSER_DEVELOPER)
  # Without this sloppiness ccache refuses every file that uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${COMPOSER_CCACHE})
endif()
find_program(COMPOSER_LLD ld.lld)
if(COMPOSER_LLD AND COMPOSER_DEVELOPER)
  add_link_options(-fuse-ld=lld)
endif()

if(COMPOSER_SANITIZE)
  add_compile_options(-fsanitize=${COMPOSER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${COMPOSER_SANITIZE})
  if(COMPOSER_SANITIZE STREQUAL "thread")
    add_compile_options(-Wno-tsan) # fences in libtorch's headers, which the thread sanitizer does not follow
  endif()
endif()

# Warnings for our own targets; they are errors where libcomposer itself is developed, never for a project that uses it.
function(composer_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Woverloaded-virtual -Wsuggest-override
    -Wno-missing-field-initializers $<$<BOOL:${COMPOSER_DEVELOPER}>:-Werror>)
  if(COMPOSER_SANITIZE) # under sanitizers g++ 12 sees uninitialised members in std::regex
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
endfunction()

# A plugin for g++ that makes precompiled headers worth twice as much (cmake/pch_plugin.cpp). Without the plugin headers of
# this g++ (Debian's package is gcc-12-plugin-dev), a build takes longer, and is the same otherwise.
if(COMPOSER_PCH AND COMPOSER_DEVELOPER AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=plugin
    OUTPUT_VARIABLE _plugins OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(_source ${CMAKE_CURRENT_LIST_DIR}/pch_plugin.cpp)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_source})
  if(EXISTS ${_plugins}/include/gcc-plugin.h)
    set(_plugin ${PROJECT_BINARY_DIR}/pch_plugin.so)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -O1 -fPIC -shared -fno-rtti -isystem ${_plugins}/include ${_source}
      -o ${_plugin}.new RESULT_VARIABLE _failed ERROR_VARIABLE _error)
    if(_failed)
      message(WARNING "g++'s plugin does not compile, the build will take longer: ${_error}")
    else() # g++ names it as a dependency of what it precompiles: it stays as it is where nothing has changed
      file(COPY_FILE ${_plugin}.new ${_plugin} ONLY_IF_DIFFERENT)
      set(COMPOSER_PCH_PLUGIN ${_plugin})
    endif()
  else()
    message(STATUS "g++'s plugin headers were not found: the build will take longer")
  endif()
endif()

# composer_precompile(target header): in <>, so that the generated file names no folder and ccache serves every clone.
function(composer_precompile target header)
  target_precompile_headers(${target} PRIVATE <${header}>)
  if(COMPOSER_PCH_PLUGIN)
    set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.cxx
      PROPERTIES COMPILE_OPTIONS -fplugin=${COMPOSER_PCH_PLUGIN})
  endif()
endfunction()

# composer_program(name source...): a program of this tree, in build/<preset>/bin: a test, an example or a benchmark.
function(composer_program name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE composer::composer nlohmann_json::nlohmann_json)
  composer_warnings(${name})
endfunction()
