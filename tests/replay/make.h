// Optimizers, schedules and options as recordings describe them: {"class": name, ...constructor arguments}. What is
// left out has the library's default, so that defaults are compared too. They throw Unsupported for what the library
// lacks.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include "composer/optim/any_optimizer.h"
#include "composer/optim/schedule.h"
#include "tests/replay/compare.h"

namespace composer::replay {

// Throws Unsupported, saying what has it, for an argument that is not known.
void require_known(const Json& arguments, const std::string& what, const std::set<std::string>& known);

void read_argument(const Json& given, Time& option);
void read_argument(const Json& given, std::vector<Time>& option);
template <class T>
void read_argument(const Json& given, T& option) {
  given.get_to(option);
}

// The options with the arguments that were given, which have the names of their fields.
template <class X>
X options_of(const Json& given, X x, std::set<std::string> known = {}) {
  known.insert("class");
  const auto read = [&](const char* name, auto& field) {
    known.insert(name);
    if (given.contains(name)) read_argument(given.at(name), field);
  };
  if constexpr (requires { x.lr; }) read("lr", x.lr);
  if constexpr (requires { x.momentum; }) read("momentum", x.momentum);
  if constexpr (requires { x.dampening; }) read("dampening", x.dampening);
  if constexpr (requires { x.weight_decay; }) read("weight_decay", x.weight_decay);
  if constexpr (requires { x.nesterov; }) read("nesterov", x.nesterov);
  if constexpr (requires { x.eps; }) read("eps", x.eps);
  if constexpr (requires { x.amsgrad; }) read("amsgrad", x.amsgrad);
  if constexpr (requires { x.centered; }) read("centered", x.centered);
  if constexpr (requires { x.lr_decay; }) read("lr_decay", x.lr_decay);
  if constexpr (requires { x.initial_accumulator_value; })
    read("initial_accumulator_value", x.initial_accumulator_value);
  if constexpr (requires { x.alpha; }) read("alpha", x.alpha);
  if constexpr (requires { x.alpha_i; }) read("alpha_i", x.alpha_i);
  if constexpr (requires { x.alpha_f; }) read("alpha_f", x.alpha_f);
  if constexpr (requires { x.gamma; }) read("gamma", x.gamma);
  if constexpr (requires { x.power; }) read("power", x.power);
  if constexpr (requires { x.t_mult; }) read("t_mult", x.t_mult);
  if constexpr (requires { x.t_max; }) read("t_max", x.t_max);
  if constexpr (requires { x.milestones; }) read("milestones", x.milestones);
  if constexpr (requires { x.decay_period; }) read("decay_period", x.decay_period);
  if constexpr (requires { x.scale_warmup; }) read("scale_warmup", x.scale_warmup);
  if constexpr (requires { x.interpolate_loss; }) read("interpolate_loss", x.interpolate_loss);
  if constexpr (requires { x.num_holes; }) read("num_holes", x.num_holes);
  if constexpr (requires { x.length; }) read("length", x.length);
  if constexpr (requires { x.uniform_sampling; }) read("uniform_sampling", x.uniform_sampling);
  if constexpr (requires { x.p_row; }) read("p_row", x.p_row);
  if constexpr (requires { x.p_col; }) read("p_col", x.p_col);
  if constexpr (requires { x.start; }) read("start", x.start);
  if constexpr (requires { x.end; }) read("end", x.end);
  if constexpr (requires { x.keep; }) read("keep", x.keep);
  if constexpr (requires { x.interrupt; }) read("interrupt", x.interrupt);
  if constexpr (requires { x.min_channels; }) read("min_channels", x.min_channels);
  if constexpr (requires { x.latent_channels; }) read("latent_channels", x.latent_channels);
  if constexpr (requires { x.min_features; }) read("min_features", x.min_features);
  if constexpr (requires { x.latent_features; }) read("latent_features", x.latent_features);
  if constexpr (requires { x.ghost_batch_size; }) read("ghost_batch_size", x.ghost_batch_size);
  require_known(given, given.at("class"), known);
  return x;
}

std::shared_ptr<torch::optim::Optimizer> make_optimizer(const Json& recorded, optim::NamedParameters parameters);
optim::Scheduler make_scheduler(const Json& recorded);
std::vector<optim::Scheduler> schedulers_of(const Json& recorded);

}  // namespace composer::replay
