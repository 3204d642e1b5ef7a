// error: this method hides one of Callback, Algorithm or LoggerDestination without overriding it
#include <vector>

#include "composer/core/plugins.h"

struct Lines : composer::LoggerDestination {
  void log_metrics(const std::vector<composer::LogEntry>& metrics);
};
composer::Loggers loggers{Lines()};
