// schedulers.json: the multipliers of every schedule over a walk through a run.
#include "composer/optim/schedulers.h"

#include <map>

#include <c10/util/Exception.h>

#include "tests/replay/errors.h"
#include "tests/replay/replay.h"

namespace composer::replay {
namespace {

// The options of a recorded scheduler.
class Options {
 public:
  explicit Options(const Json& json) : json_(json) {}
  Time time(const char* key) const { return Time::parse(json_.at(key).get<std::string>()); }
  Time time(const char* key, Time otherwise) const { return json_.contains(key) ? time(key) : otherwise; }
  double number(const char* key, double otherwise) const { return json_.value(key, otherwise); }
  bool flag(const char* key) const { return json_.value(key, false); }
  std::vector<Time> times(const char* key) const {
    std::vector<Time> times;
    for (const Json& text : json_.at(key)) times.push_back(Time::parse(text.get<std::string>()));
    return times;
  }

 private:
  const Json& json_;
};

// Defaults are the library's, so that those are compared too.
using Make = optim::Scheduler (*)(const Options&);
const std::map<std::string, Make> kSchedulers = {
    {"StepScheduler",
     [](const Options& o) {
       optim::StepOptions x{.step_size = o.time("step_size")};
       x.gamma = o.number("gamma", x.gamma);
       return optim::step(x);
     }},
    {"MultiStepScheduler",
     [](const Options& o) {
       optim::MultiStepOptions x{.milestones = o.times("milestones")};
       x.gamma = o.number("gamma", x.gamma);
       return optim::multi_step(x);
     }},
    {"ConstantScheduler",
     [](const Options& o) {
       const optim::ConstantOptions x;
       return optim::constant({.alpha = o.number("alpha", x.alpha), .t_max = o.time("t_max", x.t_max)});
     }},
    {"LinearScheduler",
     [](const Options& o) {
       const optim::LinearOptions x;
       return optim::linear({.alpha_i = o.number("alpha_i", x.alpha_i),
                             .alpha_f = o.number("alpha_f", x.alpha_f),
                             .t_max = o.time("t_max", x.t_max)});
     }},
    {"ExponentialScheduler",
     [](const Options& o) {
       const optim::ExponentialOptions x;
       return optim::exponential(
           {.gamma = o.number("gamma", x.gamma), .decay_period = o.time("decay_period", x.decay_period)});
     }},
    {"CosineAnnealingScheduler",
     [](const Options& o) {
       const optim::CosineAnnealingOptions x;
       return optim::cosine_annealing({.t_max = o.time("t_max", x.t_max), .alpha_f = o.number("alpha_f", x.alpha_f)});
     }},
    {"CosineAnnealingWarmRestartsScheduler",
     [](const Options& o) {
       optim::CosineAnnealingWarmRestartsOptions x{.t_0 = o.time("t_0")};
       x.t_mult = o.number("t_mult", x.t_mult);
       x.alpha_f = o.number("alpha_f", x.alpha_f);
       return optim::cosine_annealing_warm_restarts(x);
     }},
    {"PolynomialScheduler",
     [](const Options& o) {
       const optim::PolynomialOptions x;
       return optim::polynomial({.power = o.number("power", x.power),
                                 .t_max = o.time("t_max", x.t_max),
                                 .alpha_f = o.number("alpha_f", x.alpha_f)});
     }},
    {"MultiStepWithWarmupScheduler",
     [](const Options& o) {
       optim::MultiStepWithWarmupOptions x{.t_warmup = o.time("t_warmup"), .milestones = o.times("milestones")};
       x.gamma = o.number("gamma", x.gamma);
       x.scale_warmup = o.flag("scale_warmup");
       return optim::multi_step_with_warmup(x);
     }},
    {"ConstantWithWarmupScheduler",
     [](const Options& o) {
       optim::ConstantWithWarmupOptions x{.t_warmup = o.time("t_warmup")};
       x.alpha = o.number("alpha", x.alpha);
       x.t_max = o.time("t_max", x.t_max);
       x.scale_warmup = o.flag("scale_warmup");
       return optim::constant_with_warmup(x);
     }},
    {"LinearWithWarmupScheduler",
     [](const Options& o) {
       optim::LinearWithWarmupOptions x{.t_warmup = o.time("t_warmup")};
       x.alpha_i = o.number("alpha_i", x.alpha_i);
       x.alpha_f = o.number("alpha_f", x.alpha_f);
       x.t_max = o.time("t_max", x.t_max);
       x.scale_warmup = o.flag("scale_warmup");
       return optim::linear_with_warmup(x);
     }},
    {"CosineAnnealingWithWarmupScheduler",
     [](const Options& o) {
       optim::CosineAnnealingWithWarmupOptions x{.t_warmup = o.time("t_warmup")};
       x.t_max = o.time("t_max", x.t_max);
       x.alpha_f = o.number("alpha_f", x.alpha_f);
       x.scale_warmup = o.flag("scale_warmup");
       return optim::cosine_annealing_with_warmup(x);
     }},
    {"PolynomialWithWarmupScheduler",
     [](const Options& o) {
       optim::PolynomialWithWarmupOptions x{.t_warmup = o.time("t_warmup")};
       x.power = o.number("power", x.power);
       x.t_max = o.time("t_max", x.t_max);
       x.alpha_f = o.number("alpha_f", x.alpha_f);
       x.scale_warmup = o.flag("scale_warmup");
       return optim::polynomial_with_warmup(x);
     }},
};

class CountWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override { ++count; }
  int count = 0;
};

// Multipliers before the first batch and after each, with the epoch counted when its batches are done.
void walk(const Json& c, Json& multipliers) {
  const Json& run = c["run"];
  optim::ScheduleContext context{.max_duration = Time::parse(run["max_duration"].get<std::string>()),
                                 .scale_schedule_ratio = c["ssr"]};
  if (!run["dataloader_len"].is_null()) context.dataloader_len = run["dataloader_len"].get<std::int64_t>();
  const std::int64_t samples = run["batch_size"], tokens = samples * run["tokens_per_sample"].get<std::int64_t>();

  const auto scheduler = kSchedulers.at(c["scheduler"]["class"])(Options(c["scheduler"]));
  multipliers.push_back(number(scheduler(context)));
  for (std::int64_t i = 0; i < run["num_batches"]; ++i) {
    context.timestamp = context.timestamp.to_next_batch(samples, tokens);
    if (context.timestamp.batch_in_epoch == context.dataloader_len) {
      context.timestamp = context.timestamp.to_next_epoch();
    }
    multipliers.push_back(number(scheduler(context)));
  }
}

Outcome run_direct(const Json& c) {
  CountWarnings warnings;
  Json got = {{"multipliers", Json::array()}, {"error", nullptr}};
  const Json recorded = {
      {"multipliers", c["multipliers"]}, {"error", without_message(c)["error"]}, {"warned", !c["warnings"].empty()}};
  try {
    c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    walk(c, got["multipliers"]);
  } catch (const ConfigError& error) {
    got["error"] = error_result(error, c)["error"];
  }
  got["warned"] = warnings.count > 0;
  return judge(c, recorded, got, {});
}

Outcome run(const Json& c, const Context&) {
  if (c["kind"] != "direct") return unsupported("kind " + c["kind"].get<std::string>());
  if (!kSchedulers.contains(c["scheduler"]["class"])) {
    return unsupported("scheduler " + c["scheduler"]["class"].get<std::string>());
  }
  return run_direct(c);
}

}  // namespace

Suite schedulers_suite() { return {"schedulers.json", "Schedulers", run, {}}; }

}  // namespace composer::replay
