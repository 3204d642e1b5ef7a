#pragma once
#include <filesystem>
#include <string>

namespace composer::test {

// The folder of the repository that the tests were built from.
std::filesystem::path repository();

// A program or a library that lies beside this program.
std::string beside_this_program(const std::string& name);

}  // namespace composer::test
