#pragma once
#include <string>

#include "composer/core/export.h"
#include "composer/util/name_format.h"

namespace composer::saving {

using util::format_name;

// Throws ConfigError for an invalid name of a checkpoint: one that leaves the folder, is reserved for temporary files,
// is too long for a file system, or is the name of the link. `who` is the option or call that set the name.
COMPOSER_EXPORT void check_name(const std::string& name, const std::string& latest, const char* who = "save_filename");
// Throws ConfigError if the name collides with the link that `option` makes; an empty `link` is none.
COMPOSER_EXPORT void check_beside(const std::string& name, const std::string& link, const char* option,
                                  const char* who = "save_filename");

}  // namespace composer::saving
