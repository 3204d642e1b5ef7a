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

# composer_program(name source...): a program of this tree, in build/<preset>/bin: a test, an example or a benchmark.
function(composer_program name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE composer::composer nlohmann_json::nlohmann_json)
  composer_warnings(${name})
endfunction()
