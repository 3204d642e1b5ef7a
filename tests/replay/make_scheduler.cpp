#include "tests/replay/make_scheduler.h"

#include <map>

#include "composer/optim/schedulers.h"

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
using MakeScheduler = optim::Scheduler (*)(const Options&);
const std::map<std::string, MakeScheduler> kSchedulers = {
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

}  // namespace

optim::Scheduler make_scheduler(const Json& recorded) {
  const auto found = kSchedulers.find(recorded.at("class"));
  return found == kSchedulers.end() ? optim::Scheduler() : found->second(Options(recorded));
}

}  // namespace composer::replay
