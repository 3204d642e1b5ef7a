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
  if(COMPOSER_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
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

# composer_unit(target unit source...): adds the sources of this folder to the target, which compiles them, and what else is
# in a unit of that name, together: the unit parses libtorch's headers once. Names in anonymous namespaces must therefore be
# unique within it. A source with compile options of its own stays alone.
function(composer_unit target unit)
  target_sources(${target} PRIVATE ${ARGN})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${COMPOSER_UNITY} UNITY_BUILD_MODE GROUP)
  if(COMPOSER_UNITY AND ARGN)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${unit})
  endif()
endfunction()

# composer_units(target source...): likewise, in units of up to COMPOSER_UNIT_SIZE sources, each named after its first. Names
# are unique within a folder, so that its units can be of any size.
function(composer_units target)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  list(LENGTH ARGN all)
  math(EXPR last "(${all} + ${COMPOSER_UNIT_SIZE} - 1) / ${COMPOSER_UNIT_SIZE} - 1")
  if(last LESS 0)
    return()
  endif()
  math(EXPR units "${last} + 1")
  foreach(number RANGE ${last})
    math(EXPR begin "${number} * ${all} / ${units}")
    math(EXPR size "(${number} + 1) * ${all} / ${units} - ${begin}")
    list(SUBLIST ARGN ${begin} ${size} sources)
    list(GET sources 0 first)
    string(MAKE_C_IDENTIFIER ${folder}_${first} unit)
    composer_unit(${target} ${unit} ${sources})
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
