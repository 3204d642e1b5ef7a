#pragma once
#include <string_view>

#include "composer/core/export.h"

namespace composer {

// Whether the whole name fits the pattern: * stands for any characters, ? for one.
COMPOSER_EXPORT bool fits_wildcard(std::string_view pattern, std::string_view name);

}  // namespace composer
