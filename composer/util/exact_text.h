#pragma once
#include <string>

namespace composer::util {

// The text that join() writes, if its 6 digits suffice to read the number back; otherwise the shortest text that does.
std::string exact_text(double value);

}  // namespace composer::util
