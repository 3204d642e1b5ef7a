// schedulers.json: the multipliers of every schedule over a walk through a run.
#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "tests/replay/errors.h"
#include "tests/replay/make_scheduler.h"
#include "tests/replay/replay.h"
#include "tests/replay/trainer_schedules.h"

namespace composer::replay {
namespace {

class CountWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override { ++count; }
  int count = 0;
};

// Multipliers before the first batch and after each, with the epoch counted when its batches are done.
bool walk(const Json& c, Json& multipliers) {
  const Json& run = c["run"];
  optim::ScheduleContext context{.max_duration = Time::parse(run["max_duration"].get<std::string>()),
                                 .scale_schedule_ratio = c["ssr"]};
  if (!run["dataloader_len"].is_null()) context.dataloader_len = run["dataloader_len"].get<std::int64_t>();
  const std::int64_t samples = run["batch_size"], tokens = samples * run["tokens_per_sample"].get<std::int64_t>();

  const optim::Scheduler scheduler = make_scheduler(c["scheduler"]);
  if (!scheduler) return false;
  multipliers.push_back(number(scheduler(context)));
  for (std::int64_t i = 0; i < run["num_batches"]; ++i) {
    context.timestamp = context.timestamp.to_next_batch(samples, tokens);
    if (context.timestamp.batch_in_epoch == context.dataloader_len) {
      context.timestamp = context.timestamp.to_next_epoch();
    }
    multipliers.push_back(number(scheduler(context)));
  }
  return true;
}

Outcome run_direct(const Json& c) {
  CountWarnings warnings;
  Json got = {{"multipliers", Json::array()}, {"error", nullptr}};
  const Json recorded = {
      {"multipliers", c["multipliers"]}, {"error", without_message(c)["error"]}, {"warned", !c["warnings"].empty()}};
  try {
    c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    if (!walk(c, got["multipliers"])) return unsupported("scheduler " + c["scheduler"]["class"].get<std::string>());
  } catch (const ConfigError& error) {
    got["error"] = error_result(error, c)["error"];
  }
  got["warned"] = warnings.count > 0;
  return judge(c, recorded, got, {});
}

Outcome run_schedulers(const Json& c, const Context&) {
  return c["kind"] == "direct" ? run_direct(c) : run_trainer_schedule(c);
}

}  // namespace

Suite schedulers_suite() { return {"schedulers.json", "Schedulers", run_schedulers, trainer_schedule_rules()}; }

}  // namespace composer::replay
