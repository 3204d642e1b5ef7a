// error: this method hides one of Callback, Algorithm or LoggerDestination without overriding it
#include <string_view>

#include "composer/core/plugins.h"

struct Pictures : composer::LoggerDestination {
  void log_images(std::string_view key, const composer::LogImages& images, int step, const composer::State& state);
};
composer::Loggers loggers{Pictures()};
