#include "composer/util/exact_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "composer/core/error.h"

namespace composer::util {

std::string exact_text(double value) {
  std::string text = join(value);
  double read = 0;
  std::from_chars(text.data(), text.data() + text.size(), read);
  if (read == value || !std::isfinite(value)) return text;
  std::array<char, 32> digits{};
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), result.ptr};
}

}  // namespace composer::util
