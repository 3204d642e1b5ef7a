#pragma once
#include <string>

namespace composer::util {

// As join() writes the number if 6 digits suffice to read it back; otherwise the shortest text that does.
std::string exact_text(double value);

}  // namespace composer::util
