// error: overriding final function|overrides a .final. function
#include <utility>

#include "composer/core/plugins.h"
#include "composer/loggers/background_logger.h"

struct Lines : composer::loggers::BackgroundLogger {
  void log_metrics(std::span<const composer::LogEntry> metrics, std::int64_t step,
                   const composer::State& state) override;
};
void add(composer::Loggers& loggers, std::shared_ptr<Lines> lines) { loggers.add(std::move(lines)); }
