# Installs libcomposer into a folder, builds tests/package against it, and runs it. Then configures tests/package with
# libcomposer as a part of it: its warnings must be no errors there, and its tests not built.
set(work "${BUILD}/package")
set(source "${CMAKE_CURRENT_LIST_DIR}")
macro(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endmacro()

file(REMOVE_RECURSE "${work}/installed")
run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${work}/installed")
set(options -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${CXX}" -DCMAKE_BUILD_TYPE=Debug)
run(${CMAKE_COMMAND} -S "${source}" -B "${work}/against" ${options} "-DCMAKE_PREFIX_PATH=${work}/installed")
run(${CMAKE_COMMAND} --build "${work}/against")
run("${work}/against/consumer")

# A project that has called find_package(Torch): its libtorch is taken, and where that cannot be, it is an error that says so.
file(STRINGS "${work}/against/CMakeCache.txt" torch REGEX "^TORCH_DIR:")
string(REGEX REPLACE "^[^=]*=" "" torch "${torch}")
file(REMOVE_RECURSE "${work}/copy")
file(MAKE_DIRECTORY "${work}/copy/lib")
file(CREATE_LINK "${torch}/include" "${work}/copy/include" SYMBOLIC)
foreach(library torch torch_cpu c10)
  file(TOUCH "${work}/copy/lib/lib${library}.so")
endforeach()
file(REAL_PATH "${work}/copy" copy)
foreach(found "${torch}" "${copy}")
  file(REMOVE_RECURSE "${work}/beside_torch")
  run(${CMAKE_COMMAND} -S "${source}/beside_torch" -B "${work}/beside_torch" ${options} "-DCMAKE_PREFIX_PATH=${work}/installed"
    "-DTORCH_OF_PROJECT=${found}")
endforeach()
file(REMOVE_RECURSE "${work}/beside_torch")
execute_process(COMMAND ${CMAKE_COMMAND} -S "${source}/beside_torch" -B "${work}/beside_torch" ${options}
  "-DCMAKE_PREFIX_PATH=${work}/installed" "-DTORCH_OF_PROJECT=${copy}" "-DTORCH_DIR=${torch}"
  RESULT_VARIABLE result ERROR_VARIABLE said)
string(REGEX REPLACE "[ \n]+" " " said "${said}")
if(result EQUAL 0 OR NOT said MATCHES "a program cannot link both")
  message(FATAL_ERROR "two libtorches in one project are no error, or not this one: ${said}")
endif()

file(STRINGS "${BUILD}/CMakeCache.txt" torch REGEX "^TORCH_DIR:")
string(REGEX REPLACE "^[^=]*=" "" torch "${torch}")
run(${CMAKE_COMMAND} -S "${source}" -B "${work}/within" ${options} "-DCOMPOSER_SOURCE=${source}/../.." "-DTORCH_DIR=${torch}")
file(READ "${work}/within/compile_commands.json" commands)
if(commands MATCHES "-Werror" OR commands MATCHES "_tests\\.dir" OR NOT commands MATCHES "unity_composer_core_")
  message(FATAL_ERROR "as a part of another project: warnings are errors, the tests are built, or the library is not")
endif()
