#include <vector>

#include "composer/core/interval.h"
#include "composer/core/plugins.h"
#include "composer/optim/schedule.h"

struct Options {
  composer::OptionalTime max_duration = {};
  composer::Interval eval_interval = "1ep";
  std::vector<composer::optim::Scheduler> schedulers = {};
  composer::Callbacks callbacks = {};
  composer::Loggers loggers = {};
};
struct Run {
  explicit Run(Options options);
  Run(Run&&) noexcept;
};
class Own final : public composer::Callback {};
class Records final : public composer::LoggerDestination {};

Run run({.max_duration = "10ep",
         .eval_interval = composer::Time::parse("2ep"),
         .schedulers = {[](const composer::optim::ScheduleContext&) { return 0.5; }},
         .callbacks = {Own(), std::make_shared<Own>()},
         .loggers = {Records()}});
