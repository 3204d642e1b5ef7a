#include "composer/util/environment.h"

#include <cstdlib>
#include <string_view>

namespace composer {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool environment_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* given = std::getenv(name);
    const std::string_view value = given != nullptr ? given : "";
    if (value.empty()) continue;
    for (const char* spelling : {"UTF-8", "utf8", "UTF8", "utf-8"})
      if (value.find(spelling) != value.npos) return true;
    return false;
  }
  return false;
}

}  // namespace composer
