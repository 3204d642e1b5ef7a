#pragma once
#include <filesystem>

#include "tests/support/places.h"

namespace composer::test {

inline std::filesystem::path golden_folder() { return repository() / "tests/checkpoint/golden"; }

}  // namespace composer::test
