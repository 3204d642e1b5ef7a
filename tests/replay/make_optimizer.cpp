#include "tests/replay/make_optimizer.h"

#include <array>
#include <map>
#include <set>

#include "composer/optim/optimizer.h"
#include "tests/replay/program.h"
#include "tests/replay/training_run.h"

namespace composer::replay {
namespace {

using MakeOptimizer = optim::AnyOptimizer (*)(const Json& o);

// Sets what the recorded optimizer was given.
template <class T>
void set(T& option, const Json& o, const char* name) {
  option = o.value(name, option);
}

template <class Options>
Options sgd_options(const Json& o) {
  require_known(o, "SGD", {"class", "lr", "momentum", "dampening", "weight_decay", "nesterov"});
  Options x;
  set(x.lr, o, "lr");
  set(x.momentum, o, "momentum");
  set(x.dampening, o, "dampening");
  set(x.weight_decay, o, "weight_decay");
  set(x.nesterov, o, "nesterov");
  return x;
}

template <class Options>
Options adam_options(const Json& o) {
  require_known(o, "Adam", {"class", "lr", "betas", "eps", "weight_decay", "amsgrad"});
  Options x;
  set(x.lr, o, "lr");
  const auto betas = o.value("betas", std::array<double, 2>{x.beta1, x.beta2});
  x.beta1 = betas[0], x.beta2 = betas[1];
  set(x.eps, o, "eps");
  set(x.weight_decay, o, "weight_decay");
  set(x.amsgrad, o, "amsgrad");
  return x;
}

optim::RmspropOptions rmsprop_options(const Json& o) {
  require_known(o, "RMSprop", {"class", "lr", "alpha", "eps", "weight_decay", "momentum", "centered"});
  optim::RmspropOptions x;
  set(x.lr, o, "lr");
  set(x.alpha, o, "alpha");
  set(x.eps, o, "eps");
  set(x.weight_decay, o, "weight_decay");
  set(x.momentum, o, "momentum");
  set(x.centered, o, "centered");
  return x;
}

optim::AdagradOptions adagrad_options(const Json& o) {
  require_known(o, "Adagrad", {"class", "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"});
  optim::AdagradOptions x;
  set(x.lr, o, "lr");
  set(x.lr_decay, o, "lr_decay");
  set(x.weight_decay, o, "weight_decay");
  set(x.initial_accumulator_value, o, "initial_accumulator_value");
  set(x.eps, o, "eps");
  return x;
}

const std::map<std::string, MakeOptimizer>& makers() {
  static const std::map<std::string, MakeOptimizer> makers = {
      {"SGD", [](const Json& o) { return optim::sgd(sgd_options<optim::SgdOptions>(o)); }},
      {"DecoupledSGDW",
       [](const Json& o) { return optim::decoupled_sgdw(sgd_options<optim::DecoupledSgdwOptions>(o)); }},
      {"Adam", [](const Json& o) { return optim::adam(adam_options<optim::AdamOptions>(o)); }},
      {"AdamW", [](const Json& o) { return optim::adamw(adam_options<optim::AdamWOptions>(o)); }},
      {"DecoupledAdamW",
       [](const Json& o) { return optim::decoupled_adamw(adam_options<optim::DecoupledAdamWOptions>(o)); }},
      {"RMSprop", [](const Json& o) { return optim::rmsprop(rmsprop_options(o)); }},
      {"Adagrad", [](const Json& o) { return optim::adagrad(adagrad_options(o)); }},
  };
  return makers;
}

}  // namespace

std::shared_ptr<torch::optim::Optimizer> make_optimizer(const Json& recorded, const Model& model) {
  const auto name = recorded.at("class").get<std::string>();
  const auto found = makers().find(name);
  if (found == makers().end()) throw Unsupported{"optimizer " + name};
  return found->second(recorded).make(optim::parameters_of(model));
}

}  // namespace composer::replay
