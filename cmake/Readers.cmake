# The libraries that some readers of files need, which libcomposer does without where they are missing: what needs one then throws
# a ConfigError that names the package. CMake's own variables choose: CMAKE_DISABLE_FIND_PACKAGE_JPEG=ON leaves one out,
# CMAKE_REQUIRE_FIND_PACKAGE_JPEG=ON makes it an error that it is missing.
#
# A new one is: a line of composer_find_readers(), below; composer_uses_reader(NAME source...) beside its sources, which are
# compiled with COMPOSER_HAS_NAME=1 or 0; and its package in scripts/lib.sh (seen_by, to_build), scripts/gpu (PACKAGES, LINKED)
# and docs/reference/building.md. An installed static library finds the same ones again with this file.

# composer_reader(NAME PACKAGE package READS what [TARGET target [VERSION least]] [HEADER header LIBRARY library]): finds it by
# CMake's module, which has the given target, or by its header and library. If `wanted` is a list, only those in it are looked for.
macro(composer_reader name)
  cmake_parse_arguments(reader "" "PACKAGE;READS;TARGET;VERSION;HEADER;LIBRARY" "" ${ARGN})
  if(wanted STREQUAL "ALL" OR "${name}" IN_LIST wanted)
    if(reader_TARGET)
      find_package(${name} ${reader_VERSION} QUIET)
    else()
      set(reader_TARGET composer_reader::${name})
      if(NOT CMAKE_DISABLE_FIND_PACKAGE_${name} AND NOT TARGET ${reader_TARGET})
        find_path(COMPOSER_${name}_HEADER ${reader_HEADER})
        find_library(COMPOSER_${name}_LIBRARY ${reader_LIBRARY})
        mark_as_advanced(COMPOSER_${name}_HEADER COMPOSER_${name}_LIBRARY)
        if(COMPOSER_${name}_HEADER AND COMPOSER_${name}_LIBRARY)
          add_library(${reader_TARGET} UNKNOWN IMPORTED)
          set_target_properties(${reader_TARGET} PROPERTIES IMPORTED_LOCATION "${COMPOSER_${name}_LIBRARY}"
            INTERFACE_INCLUDE_DIRECTORIES "${COMPOSER_${name}_HEADER}")
        elseif(CMAKE_REQUIRE_FIND_PACKAGE_${name})
          message(FATAL_ERROR "CMAKE_REQUIRE_FIND_PACKAGE_${name}=ON: ${reader_HEADER} and ${reader_LIBRARY} were not found (Debian's package is ${reader_PACKAGE})")
        endif()
      endif()
    endif()
    if(TARGET ${reader_TARGET} AND NOT CMAKE_DISABLE_FIND_PACKAGE_${name})
      list(APPEND names ${name})
      list(APPEND targets ${reader_TARGET})
      list(APPEND read "${reader_READS}")
    else()
      list(APPEND left_out "${reader_READS} (${reader_PACKAGE})")
    endif()
  endif()
endmacro()

# composer_find_readers(ALL | name...): sets COMPOSER_READERS, the names of those found, and COMPOSER_READER_TARGETS, and says
# which are left out.
function(composer_find_readers)
  set(wanted ${ARGN})
  set(names)
  set(targets)
  set(read)
  set(left_out)
  composer_reader(GIF TARGET GIF::GIF VERSION 5 PACKAGE libgif-dev READS "GIF")
  composer_reader(JPEG TARGET JPEG::JPEG PACKAGE libjpeg-dev READS "JPEG")
  composer_reader(ZSTD HEADER zstd.h LIBRARY zstd PACKAGE libzstd-dev READS "MDS compressed by zstd")
  if(wanted STREQUAL "ALL")
    list(JOIN read ", " read)
    list(JOIN left_out ", " left_out)
    foreach(list read left_out)
      if(NOT ${list})
        set(${list} none)
      endif()
    endforeach()
    message(STATUS "optional formats: ${read}; left out: ${left_out}")
  endif()
  set(COMPOSER_READERS ${names} PARENT_SCOPE)
  set(COMPOSER_READER_TARGETS ${targets} PARENT_SCOPE)
endfunction()

# composer_uses_reader(NAME source...): these sources of the folder ask COMPOSER_HAS_NAME; each is compiled by itself.
function(composer_uses_reader name)
  set(has 0)
  if(name IN_LIST COMPOSER_READERS)
    set(has 1)
  endif()
  foreach(objects composer_base composer_objects)
    set_property(SOURCE ${ARGN} TARGET_DIRECTORY ${objects} APPEND PROPERTY COMPILE_DEFINITIONS COMPOSER_HAS_${name}=${has})
  endforeach()
endfunction()
