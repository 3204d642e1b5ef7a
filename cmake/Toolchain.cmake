# What makes the edit-build-test round short (ccache, lld), and what all our targets share (warnings, sanitizers).
find_program(COMPOSER_CCACHE ccache)
if(COMPOSER_CCACHE AND COMPOSER_DEVELOPER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${COMPOSER_CCACHE})
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
  if(COMPOSER_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU) # it takes the sources in a unit for headers
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang) # std::stable_sort in libstdc++ 12 calls what it has deprecated itself; g++ warns of ours
    target_compile_options(${target} PRIVATE -Wno-deprecated-declarations)
  endif()
  if(COMPOSER_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU) # under sanitizers g++ 12 sees uninitialised members in std::regex
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
endfunction()

# composer_units(target source...): adds the sources of this folder to the target, which compiles them in units of up to
# COMPOSER_UNIT_SIZE sources. A unit parses libtorch's headers once, so a build takes a third of the time; names in anonymous
# namespaces must therefore be unique within a folder. A source with compile options of its own stays alone.
function(composer_units target)
  target_sources(${target} PRIVATE ${ARGN})
  if(NOT COMPOSER_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF) # also where CMAKE_UNITY_BUILD says ON
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(MAKE_C_IDENTIFIER ${folder} unit)
  list(LENGTH ARGN sources)
  math(EXPR units "(${sources} + ${COMPOSER_UNIT_SIZE} - 1) / ${COMPOSER_UNIT_SIZE}")
  set(place 0)
  foreach(source IN LISTS ARGN)
    math(EXPR number "${place} * ${units} / ${sources}")
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${unit}_${number})
    math(EXPR place "${place} + 1")
  endforeach()
endfunction()

# composer_program(name source...): a program of this tree, in build/<preset>/bin: a test, an example or a benchmark. It links
# libcomposer, as a user's program does.
function(composer_program name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE composer::composer nlohmann_json::nlohmann_json)
  composer_warnings(${name})
endfunction()
