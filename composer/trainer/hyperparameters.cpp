#include "composer/trainer/hyperparameters.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/optim/optimizer.h>

#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/logger.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/device/device_support.h"
#include "composer/dist/described_options.h"
#include "composer/dist/world.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"
#include "composer/optim/optimizer_state.h"
#include "composer/trainer/learning_rates.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/trainer_options.h"
#include "composer/trainer/training_data.h"
#include "composer/util/utf8.h"

namespace composer {
namespace {

StateValue value_of(const LogValue& logged) {
  return std::visit(
      [](const auto& value) -> StateValue {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, at::Tensor>)
          return value.template item<double>();
        else
          return value;
      },
      logged);
}

// Numbers are compared exactly, integers with floating-point numbers too; NaN equals NaN. Other values are compared as
// text.
bool is_same(const StateValue& a, const StateValue& b) {
  const auto* one = std::get_if<double>(&a);
  const auto* other = std::get_if<double>(&b);
  if (one && other) return *one == *other || (*one != *one && *other != *other);
  return text_of(a) == text_of(b);
}

std::string names_of(const Algorithms& plugins) {
  const std::string names = listed(plugins.list(), [](const auto& plugin) { return plugin.name; });
  return names.empty() ? "none" : names;
}

// Adds options as "name/option".
void add(StateDict& into, const std::string& name, const StateDict& options) {
  for (const auto& [option, value] : options.entries()) into[join(name, '/', option)] = value;
}

// The second plug-in of a class is named "Name-2", as in checkpoints.
template <class Base>
void add_options(StateDict& into, const Plugins<Base>& plugins) {
  std::map<std::string, int> seen;
  for (const auto& plugin : plugins.list()) {
    const int number = ++seen[plugin.name];
    try {
      add(into, number == 1 ? plugin.name : join(plugin.name, '-', number), plugin.object->local_hparams());
    } catch (...) {
      throw_nested<ConfigError>(plugin.name, " failed in local_hparams()");
    }
  }
}

// The learning rate is the one before any schedule. Returns false for an options class of another library.
bool add_named(StateDict& into, const std::string& group, const torch::optim::OptimizerOptions& given) {
  const auto* options = dynamic_cast<const optim::NamedOptions*>(&given);
  if (!options) return false;
  const StateDict described = options->described();
  for (const auto& [name, value] : described.entries())
    if (name != "lr") into[group + name] = value;
  into[group + "lr"] = options->initial_lr;
  return true;
}

constexpr const char* kOptimizer = "optimizer/";
constexpr const char* kGroups = "optimizer/groups";

// Whether it is about the number of ranks, which is logged but is not compared when a run is resumed.
bool is_of_ranks(const std::string& name) {
  return name == "num_nodes" || name == "num_cpus_per_node" || name == "num_gpus_per_node";
}

// Whether the number of parameter groups differs; their options then have other names.
bool is_regrouped(const StateDict& before, const StateDict& now) {
  const StateValue *then = before.find(kGroups), *groups = now.find(kGroups);
  return then && groups && !is_same(*then, *groups);
}

}  // namespace

void add_optimizer(StateDict& into, const torch::optim::Optimizer& optimizer, const std::vector<double>& made_lr) {
  into["optimizer/class"] = class_name(typeid(optimizer));
  const auto& groups = optimizer.param_groups();
  into[kGroups] = static_cast<std::int64_t>(groups.size());
  const std::vector<StateDict> serialized = serialized_options(optimizer);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string group = groups.size() == 1 ? kOptimizer : join(kOptimizer, i, '/');
    const torch::optim::Optimizer& rule = optim::rule_of(optimizer, i);
    if (&rule != &optimizer) into[group + "class"] = class_name(typeid(rule));
    if (groups[i].has_options() && add_named(into, group, groups[i].options())) continue;
    if (i < made_lr.size()) into[group + "lr"] = made_lr[i];
    for (const auto& [name, value] : serialized[i].entries()) into[group + name] = value;
  }
}

void tell_model(StateDict& into, const TrainerOptions&, const InRun& run) {
  const Model& model = *run.state.model;
  into["model/class"] = class_name_of(model);
  std::int64_t parameters = 0;
  for (const auto& [name, parameter] : optim::parameters_of(as_module(model))) parameters += parameter.numel();
  into["parameters"] = parameters;
}

void tell_algorithms(StateDict& into, const TrainerOptions& options, const InRun&) {
  into["algorithms"] = names_of(options.algorithms);
  add_options(into, options.algorithms);
}

// Adds the options of training on several ranks that change results by more than rounding.
void tell_distributed(StateDict& into, const TrainerOptions& options, const InRun&) {
  for (const Option<dist::DistributedOptions>& option : dist::distributed_options())
    if (option.is_logged()) into["distributed/" + option.name] = option.value(options.distributed);
}

StateDict hyperparameters_of(const TrainerOptions& options, const State& state, const Logger& logger, const Feed& train,
                             const std::vector<double>& made_lr, const StateDict& before) {
  StateDict all;
  for (const auto& option : trainer_options())
    if (option.is_logged()) option.tell_to(all, options, {state, train, made_lr});
  add(all, "model", local_hparams_of(*state.model));
  add_options(all, options.callbacks);
  if (!options.tune) all["threads"] = static_cast<std::int64_t>(at::get_num_threads());
  for (const auto& [name, value] : logger.hyperparameters())
    if (name != "rank_zero_seed" && !all.find(name)) all[name] = value_of(value);
  const bool regrouped = is_regrouped(before, all);
  for (const auto& [name, value] : before.entries())
    if (!all.find(name) && !(regrouped && name.starts_with(kOptimizer))) all[name] = value;
  std::vector<StateDict::Entry> sorted(all.entries().begin(), all.entries().end());
  std::ranges::sort(sorted, {}, &StateDict::Entry::first);
  StateDict by_name;
  for (auto& [name, value] : sorted) {
    if (auto* text = std::get_if<std::string>(&value)) *text = util::valid_utf8(*text);  // as the logger stores it
    by_name[util::valid_utf8(name)] = std::move(value);
  }
  return by_name;
}

StateDict Hyperparameters::now(const StateDict& before) const {
  return hyperparameters_of(needs_.options, needs_.state, needs_.logger, needs_.data.feed(), needs_.rates.made(),
                            before);
}

void Hyperparameters::log_run() {
  const std::int64_t per_node = needs_.options.world->environment().local_world_size;
  needs_.logger.log_hyperparameters({{"composer_version", std::string(COMPOSER_VERSION)},
                                     {"num_nodes", std::max<std::int64_t>(needs_.ranks.size() / per_node, 1)},
                                     {device_support(needs_.state.device.type()).key_of_ranks(), per_node},
                                     {"rank_zero_seed", static_cast<std::int64_t>(needs_.state.seed)}});
}

void Hyperparameters::log_algorithms(bool goes_on) {
  if (goes_on && logged_.algorithms) return;
  logged_.algorithms = true;
  for (const auto& algorithm : needs_.engine.algorithms())
    needs_.logger.log_hyperparameters({{join("enabled_algorithms/", algorithm.name), true}});
}

void Hyperparameters::log_options(const StateDict& before) {
  if (!needs_.options.auto_log_hparams || std::exchange(logged_.options_here, true)) return;
  const StateDict now = this->now();
  const StateDict new_ones = std::exchange(logged_.options, true) ? changed(before, now) : now;
  std::vector<LogEntry> entries;
  for (const auto& [name, value] : new_ones.entries())
    if (!needs_.logger.hyperparameters().contains(name)) entries.push_back({name, log_value(value)});
  if (!entries.empty()) needs_.logger.log_hyperparameters(entries);
}

// Checkpoints of earlier versions lack this entry; their run has logged the hyperparameters, unless the checkpoint was
// saved before the first fit.
void Hyperparameters::visit_state(StateVisitor& visit) {
  if (!visit.is_of_this_run()) return;
  if (!visit.is_loading() || visit.has("logged"))
    visit("logged", logged_);
  else
    logged_.algorithms = logged_.options = true;
}

StateDict changed(const StateDict& before, const StateDict& now) {
  StateDict changes;
  for (const auto& [name, value] : now.entries()) {
    const StateValue* old = before.find(name);
    if (!old || !is_same(*old, value)) changes[name] = value;
  }
  return changes;
}

LogValue log_value(const StateValue& value) {
  return std::visit(
      [](const auto& held) -> LogValue {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, StateDict>)
          return std::string("?");
        else
          return held;
      },
      static_cast<const StateValue::variant&>(value));
}

// Other entries that only one of them has are not logged yet, or come from another version.
void warn_of_changes(const StateDict& before, const StateDict& now) {
  constexpr std::size_t kMostShown = 100;
  std::vector<std::string> changes;
  const bool regrouped = is_regrouped(before, now);
  const auto add = [&](const std::string& name, const StateValue* old, const StateValue* value) {
    if ((old && value) || (regrouped && name.starts_with(kOptimizer)))
      changes.push_back(
          join("\n  ", name, ": ", old ? text_of(*old) : "none", " -> ", value ? text_of(*value) : "none"));
  };
  const StateDict differing = changed(before, now);
  for (const auto& [name, value] : differing.entries())
    if (!is_of_ranks(name)) add(name, before.find(name), &value);
  for (const auto& [name, value] : before.entries())
    if (!now.find(name)) add(name, &value, nullptr);
  if (changes.empty()) return;
  std::string text = "checkpoint: the run goes on with other hyperparameters than it had:";
  for (std::size_t i = 0; i < std::min(changes.size(), kMostShown); ++i) text += changes[i];
  if (changes.size() > kMostShown) text += join("\n  and ", changes.size() - kMostShown, " others");
  warn(text);
}

}  // namespace composer
