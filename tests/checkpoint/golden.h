#pragma once
#include <filesystem>

namespace composer::test {

// tests/checkpoint/golden
std::filesystem::path golden_folder();

}  // namespace composer::test
