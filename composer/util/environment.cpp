#include "composer/util/environment.h"

#include <cstdlib>

namespace composer {

std::optional<std::string> environment_if_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

std::string environment(const char* name) { return environment_if_set(name).value_or(""); }

std::filesystem::path cache_folder() {
  const std::filesystem::path caches = environment("XDG_CACHE_HOME"), home = environment("HOME");
  if (caches.is_absolute()) return caches / "libcomposer";
  if (home.is_absolute()) return home / ".cache/libcomposer";
  return {};
}

bool environment_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = environment(name);
    if (value.empty()) continue;
    for (const char* spelling : {"UTF-8", "utf8", "UTF8", "utf-8"})
      if (value.find(spelling) != value.npos) return true;
    return false;
  }
  return false;
}

}  // namespace composer
