// error: is not called, because a base of the class overrides
// called
#include <utility>

#include "composer/core/plugins.h"

struct Counted : composer::LoggerDestination {
  void log_record(const composer::Record& record, const composer::State& state) override;
};
struct Mine : Counted {
  void log_metrics(std::span<const composer::LogEntry> metrics, std::int64_t step,
                   const composer::State& state) override;
};
void add(composer::Loggers& loggers, std::shared_ptr<Mine> mine) { loggers.add(std::move(mine)); }
