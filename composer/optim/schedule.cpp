#include "composer/optim/schedule.h"

#include <typeinfo>

#include "composer/core/error.h"
#include "composer/core/plugins.h"

namespace composer::optim {
namespace {

std::int64_t epoch_length(Time time, const ScheduleContext& context) {
  if (context.dataloader_len) return *context.dataloader_len;
  throw ConfigError("schedule: ", time, " requires a train loader of known length; give it in ba, sp or tok");
}

}  // namespace

MetricSchedule::~MetricSchedule() = default;
void MetricSchedule::visit_state(StateVisitor&) {}
void MetricSchedule::begin_run() {}
void MetricSchedule::check_fit(const FitOutline&, const State&) const {}

std::string Scheduler::to_string() const {
  if (!text_.empty()) return text_;
  const MetricSchedule* metric = metric_.get();
  return metric ? class_name(typeid(*metric)) : std::string("a function");
}

Time resolve(Time time, const ScheduleContext& context, double ratio) {
  const Time run = context.max_duration;
  switch (time.unit()) {
    case TimeUnit::SECOND:
      throw ConfigError("schedule: ", time, " is in seconds; schedules count in ep, ba, sp, tok, iter or dur");
    case TimeUnit::DURATION: {
      if (run.unit() == kEndless.unit() && run.count() == kEndless.count())
        throw ConfigError(
            "schedule: ", time,
            " is a share of the run, whose length is unknown without a max_duration; set max_duration, or "
            "give the schedule in ba, sp or tok");
      if (run.unit() != TimeUnit::EPOCH) return run * time;
      // This order of factors determines how products like 0.29 of 100 batches are cut off.
      const Time batches(epoch_length(time, context), TimeUnit::BATCH);
      const double share_of_epoch = time.as_double() * batches.as_double();
      return Time(1, TimeUnit::BATCH) * (share_of_epoch * run.as_double());
    }
    case TimeUnit::EPOCH:
      time = Time(time.count(), TimeUnit::BATCH) * epoch_length(time, context);
      break;
    default:
      break;
  }
  return ratio == 1 ? time : time * ratio;
}

}  // namespace composer::optim
