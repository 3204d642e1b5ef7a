#pragma once
// What the environment says. Nothing else reads its variables.
#include <filesystem>
#include <optional>
#include <string>

#include "composer/core/export.h"

namespace composer {

std::string environment(const char* name);  // the value of a variable; empty: unset
COMPOSER_EXPORT std::optional<std::string> environment_if_set(const char* name);

// libcomposer's, below the user's folder for what can be had again; empty: the environment names none.
std::filesystem::path cache_folder();

// Whether LC_ALL, LC_CTYPE or LANG, the first of them that is set, asks for UTF-8.
bool environment_is_utf8();

}  // namespace composer
