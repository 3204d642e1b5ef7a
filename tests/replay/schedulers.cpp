// schedulers.json: the multipliers of every schedule over a walk through a run.
#include "composer/core/error.h"
#include "tests/replay/errors.h"
#include "tests/replay/make.h"
#include "tests/replay/replay.h"
#include "tests/replay/trainer_schedules.h"
#include "tests/support/warnings.h"

namespace composer::replay {
namespace {

optim::ScheduleContext start_of(const Json& c) {
  const Json& run = c["run"];
  optim::ScheduleContext context{.max_duration = Time::parse(run["max_duration"].get<std::string>()),
                                 .scale_schedule_ratio = c["ssr"]};
  if (!run["dataloader_len"].is_null()) context.dataloader_len = run["dataloader_len"];
  return context;
}

// Adds the multipliers before the first batch and after each, with the epoch counted when its batches are done.
void add_multipliers(const Json& c, Json& all) {
  const Json& run = c["run"];
  optim::ScheduleContext context = start_of(c);
  const std::int64_t samples = run["batch_size"], tokens = samples * run["tokens_per_sample"].get<std::int64_t>();

  const optim::Scheduler scheduler = make_scheduler(c["scheduler"]);
  all.push_back(number(scheduler(context)));
  for (std::int64_t i = 0; i < run["num_batches"]; ++i) {
    context.timestamp = context.timestamp.to_next_batch(samples, tokens);
    if (context.timestamp.batch_in_epoch == context.dataloader_len) {
      context.timestamp = context.timestamp.to_next_epoch();
    }
    all.push_back(number(scheduler(context)));
  }
}

Json walk(const Json& c) {
  const test::Warnings warnings;
  Json got = {{"multipliers", Json::array()}, {"error", nullptr}};
  try {
    add_multipliers(c, got["multipliers"]);
  } catch (const ConfigError& error) {
    got["error"] = error_result(error, c)["error"];
  }
  got["warned"] = !warnings.texts.empty();
  return got;
}

Rule scaled_warmups_end_where_the_rest_starts() {
  return {.name = "scaled_warmups_end_where_the_rest_starts",
          .applies_to = "`scale_warmup` with a `scale_schedule_ratio`",
          .composer_does =
              "Scales the slope of the warm-up, but not its end: with a ratio of 2 the rate jumps from half "
              "of the peak to the peak, with 0.5 it waits at the peak.",
          .we_do = "Scales the warm-up, and the rest of the schedule starts where it ends.",
          .why = "A scaled run has the shape of the run that it was scaled from.",
          .matches =
              [](const Json& c) {
                return c["kind"] == "direct" && c["ssr"] != 1.0 && c["scheduler"].value("scale_warmup", false);
              },
          .ours = [](Json& expected, const Json& c) {  // as if the scaled warm-up had been given
            Json scaled = c;
            Json& scheduler = scaled["scheduler"];
            const Time given = Time::parse(scheduler["t_warmup"].get<std::string>());
            scheduler["t_warmup"] = to_string(optim::resolve(given, start_of(c), c["ssr"]));
            scheduler["scale_warmup"] = false;
            expected = walk(scaled);
          }};
}

Rules schedule_rules() {
  Rules rules = trainer_schedule_rules(nullptr, nullptr);
  rules.push_back(scaled_warmups_end_where_the_rest_starts());
  return rules;
}

Outcome run_direct(const Json& c) {
  const Json recorded = {
      {"multipliers", c["multipliers"]}, {"error", without_message(c)["error"]}, {"warned", !c["warnings"].empty()}};
  return judge(c, recorded, walk(c), {scaled_warmups_end_where_the_rest_starts()});
}

Outcome run_schedulers(const Json& c, const Context& context) {
  return c["kind"] == "direct" ? run_direct(c) : run_trainer_schedule(c, context);
}

}  // namespace

Suite schedulers_suite() { return {"schedulers.json", "Schedulers", run_schedulers, schedule_rules()}; }

}  // namespace composer::replay
