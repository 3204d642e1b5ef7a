#include "composer/core/entry.h"

#include "composer/core/error.h"

namespace composer::detail {

void read_option(const std::string& plugin, const std::string& option, const std::function<void()>& read) {
  try {
    read();
  } catch (const ConfigError& error) {
    throw ConfigError(plugin, ": ", option, ": ", error.what());
  }
}

}  // namespace composer::detail
