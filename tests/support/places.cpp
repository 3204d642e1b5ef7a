// What names folders is in this source alone, so that the others need not be compiled anew in every clone.
#include "tests/support/places.h"

namespace composer::test {

std::filesystem::path repository() { return COMPOSER_REPOSITORY; }

std::string beside_this_program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename(name);
}

}  // namespace composer::test
