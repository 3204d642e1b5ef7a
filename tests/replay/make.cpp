#include "tests/replay/make.h"

#include <array>
#include <map>
#include <utility>

#include "composer/optim/optimizer.h"
#include "composer/optim/schedulers.h"

namespace composer::replay {
namespace {

using MakeOptimizer = optim::AnyOptimizer (*)(const Json& recorded);
template <auto Make, class Options>
optim::AnyOptimizer optimizer(const Json& recorded) {
  Options options = options_of(recorded, Options{}, {"betas"});
  if constexpr (requires { options.beta2; }) {
    const auto betas = recorded.value("betas", std::array<double, 2>{options.beta1, options.beta2});
    options.beta1 = betas[0], options.beta2 = betas[1];
  }
  return Make(options);
}

const std::map<std::string, MakeOptimizer> kOptimizers = {
    {"SGD", optimizer<optim::sgd, optim::SgdOptions>},
    {"DecoupledSGDW", optimizer<optim::decoupled_sgdw, optim::DecoupledSgdwOptions>},
    {"Adam", optimizer<optim::adam, optim::AdamOptions>},
    {"AdamW", optimizer<optim::adamw, optim::AdamWOptions>},
    {"DecoupledAdamW", optimizer<optim::decoupled_adamw, optim::DecoupledAdamWOptions>},
    {"RMSprop", optimizer<optim::rmsprop, optim::RmspropOptions>},
    {"Adagrad", optimizer<optim::adagrad, optim::AdagradOptions>}};

using MakeScheduler = optim::Scheduler (*)(const Json& recorded);
template <auto Make, class Options>
optim::Scheduler schedule(const Json& recorded) {
  return Make(options_of(recorded, Options{}));
}
// One whose first field is a time that must be given.
template <auto Make, class Options>
optim::Scheduler schedule_from(const Json& recorded) {
  for (const char* first : {"step_size", "t_0", "t_warmup"})
    if (recorded.contains(first))
      return Make(options_of(recorded, Options{Time::parse(recorded[first].get<std::string>())}, {first}));
  throw Unsupported{"schedule without its time: " + recorded.dump()};
}

const std::map<std::string, MakeScheduler> kSchedulers = {
    {"StepScheduler", schedule_from<optim::step, optim::StepOptions>},
    {"MultiStepScheduler", schedule<optim::multi_step, optim::MultiStepOptions>},
    {"ConstantScheduler", schedule<optim::constant, optim::ConstantOptions>},
    {"LinearScheduler", schedule<optim::linear, optim::LinearOptions>},
    {"ExponentialScheduler", schedule<optim::exponential, optim::ExponentialOptions>},
    {"CosineAnnealingScheduler", schedule<optim::cosine_annealing, optim::CosineAnnealingOptions>},
    {"CosineAnnealingWarmRestartsScheduler",
     schedule_from<optim::cosine_annealing_warm_restarts, optim::CosineAnnealingWarmRestartsOptions>},
    {"PolynomialScheduler", schedule<optim::polynomial, optim::PolynomialOptions>},
    {"MultiStepWithWarmupScheduler", schedule_from<optim::multi_step_with_warmup, optim::MultiStepWithWarmupOptions>},
    {"ConstantWithWarmupScheduler", schedule_from<optim::constant_with_warmup, optim::ConstantWithWarmupOptions>},
    {"LinearWithWarmupScheduler", schedule_from<optim::linear_with_warmup, optim::LinearWithWarmupOptions>},
    {"CosineAnnealingWithWarmupScheduler",
     schedule_from<optim::cosine_annealing_with_warmup, optim::CosineAnnealingWithWarmupOptions>},
    {"PolynomialWithWarmupScheduler",
     schedule_from<optim::polynomial_with_warmup, optim::PolynomialWithWarmupOptions>}};

template <class Make>
Make found_in(const std::map<std::string, Make>& list, const Json& recorded) {
  const auto found = list.find(recorded.at("class"));
  if (found == list.end()) throw Unsupported{"class " + recorded.at("class").get<std::string>()};
  return found->second;
}

}  // namespace

void require_known(const Json& arguments, const std::string& what, const std::set<std::string>& known) {
  for (const auto& [name, value] : arguments.items())
    if (!known.contains(name)) throw Unsupported{what + " " + name};
}

void read_argument(const Json& given, Time& option) { option = Time::parse(given.get<std::string>()); }
void read_argument(const Json& given, std::vector<Time>& option) {
  for (const Json& text : given) option.push_back(Time::parse(text.get<std::string>()));
}

std::shared_ptr<torch::optim::Optimizer> make_optimizer(const Json& recorded, optim::NamedParameters parameters) {
  return found_in(kOptimizers, recorded)(recorded).make(std::move(parameters));
}

optim::Scheduler make_scheduler(const Json& recorded) { return found_in(kSchedulers, recorded)(recorded); }

std::vector<optim::Scheduler> schedulers_of(const Json& recorded) {
  std::vector<optim::Scheduler> list;
  for (const Json& one : recorded) list.push_back(make_scheduler(one));
  return list;
}

}  // namespace composer::replay
