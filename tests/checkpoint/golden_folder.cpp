#include "tests/checkpoint/golden.h"

namespace composer::test {

std::filesystem::path golden_folder() { return COMPOSER_SOURCE_DIR "/tests/checkpoint/golden"; }

}  // namespace composer::test
