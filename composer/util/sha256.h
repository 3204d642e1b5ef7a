#pragma once
#include <string>
#include <string_view>

#include "composer/core/export.h"

namespace composer::util {

// The SHA-256 of bytes (FIPS 180-4), as 64 hexadecimal digits in lower case.
COMPOSER_EXPORT std::string sha256(std::string_view bytes);

}  // namespace composer::util
