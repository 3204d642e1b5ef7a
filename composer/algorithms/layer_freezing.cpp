#include "composer/algorithms/layer_freezing.h"

#include <algorithm>
#include <cstddef>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/optim/named_optimizer.h"

namespace composer::algorithms {
namespace {

void add_layers(const torch::nn::Module& module, std::vector<std::vector<at::Tensor>>& layers) {
  const auto children = named_children(module);
  for (const auto& [name, child] : children) add_layers(*child, layers);
  if (!children.empty()) return;
  if (std::vector<at::Tensor> parameters = composer::parameters(module); !parameters.empty())
    layers.push_back(std::move(parameters));
}

void remove(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  for (auto& group : optimizer.param_groups()) {
    auto& parameters = group.params();
    const auto found = std::ranges::find_if(parameters, [&](const at::Tensor& one) { return one.is_same(parameter); });
    if (found == parameters.end()) continue;
    if (auto* ours = dynamic_cast<optim::NamedOptimizer*>(&optimizer)) return ours->remove_parameter(parameter);
    optimizer.state().erase(parameter.unsafeGetTensorImpl());
    parameters.erase(found);
    return;
  }
}

using Layers = std::vector<std::vector<at::Tensor>>;

Layers layers_of(const torch::nn::Module& model) {
  Layers layers;
  add_layers(model, layers);
  return layers;
}

void freeze(const Layers& layers, std::size_t depth, torch::optim::Optimizer& optimizer) {
  std::unordered_set<const void*> trained;
  for (std::size_t i = depth; i < layers.size(); ++i)
    for (const at::Tensor& parameter : layers[i]) trained.insert(parameter.unsafeGetTensorImpl());
  for (std::size_t i = 0; i < std::min(depth, layers.size()); ++i) {
    for (const at::Tensor& parameter : layers[i]) {
      if (!parameter.requires_grad() || trained.contains(parameter.unsafeGetTensorImpl())) continue;
      remove(optimizer, parameter);
      parameter.mutable_grad().reset();  // the optimizer no longer sets it to zero
      parameter.set_requires_grad(false);
    }
  }
}

std::vector<Option<LayerFreezingOptions>> layer_freezing_options() {
  using O = LayerFreezingOptions;
  return all_options(option("freeze_start", &O::freeze_start).from_to(0, 1),
                     option("freeze_level", &O::freeze_level).from_to(0, 1));
}

}  // namespace

double freeze_schedule(double current_duration, const LayerFreezingOptions& options) {
  check(options, layer_freezing_options(), "LayerFreezing: ", "");
  if (!(current_duration >= 0))
    throw ConfigError("freeze_schedule: current_duration must be >= 0, got ", current_duration);
  const double done = std::min(current_duration, 1.0);  // the last batch may overshoot the end of the run
  if (done <= options.freeze_start) return 0;
  return options.freeze_level * ((done - options.freeze_start) / (1 - options.freeze_start));
}

FrozenLayers freeze_layers(torch::nn::Module& model, torch::optim::Optimizer& optimizer, double current_duration,
                           const LayerFreezingOptions& options) {
  const Layers layers = layers_of(model);
  const double percentage = freeze_schedule(current_duration, options);
  const auto most = std::max<std::int64_t>(static_cast<std::int64_t>(layers.size()) - 1, 0);
  // Rounds like Composer in the recorded runs: util::share_of would freeze some layers a batch or two earlier.
  const auto depth = std::min(static_cast<std::int64_t>(percentage * static_cast<double>(most)), most);
  freeze(layers, static_cast<std::size_t>(depth), optimizer);
  return {depth, percentage};
}

LayerFreezing::LayerFreezing(LayerFreezingOptions options)
    : options_(checked("LayerFreezing", options, layer_freezing_options())) {}

void LayerFreezing::apply(Event event, State& state, Logger& logger) {
  if (event == Event::INIT) {
    state_ = &state;
    frozen_ = 0;
    return;
  }
  if (event == Event::FIT_START) {
    if (!state.max_duration) throw ConfigError("LayerFreezing: needs a max_duration");
    return;
  }
  const FrozenLayers now = freeze_layers(as_module(*state.model), *state.optimizer, state.elapsed_duration(), options_);
  frozen_ = std::max(frozen_, now.depth);
  logger.log_metrics({{"layer_freezing/layers_frozen", frozen_}, {"layer_freezing/percentage_frozen", now.percentage}});
}

void LayerFreezing::check_load(const StateDict& saved) const {
  std::int64_t then = 0;
  StateVisitor::loading(saved, "LayerFreezing")("layers_frozen", then);
  if (then < frozen_)
    throw CheckpointError("LayerFreezing: ", frozen_, " layers are frozen, and ", then,
                          " were when the checkpoint was saved. Frozen layers stay frozen: load it with load_path in a "
                          "new trainer");
}

// Freezes layers when loading, because the optimizer is loaded next, and the checkpoint has no state of frozen
// parameters.
void LayerFreezing::visit_state(StateVisitor& visit) {
  visit("layers_frozen", frozen_);
  if (visit.is_loading() && frozen_ > 0 && state_ && state_->optimizer)
    freeze(layers_of(as_module(*state_->model)), static_cast<std::size_t>(frozen_), *state_->optimizer);
}

StateDict LayerFreezing::local_hparams() const { return describe(options_, layer_freezing_options()); }

namespace entries {

Entry<Algorithms> layer_freezing() {
  return entry<LayerFreezing>("layer_freezing", "Stops training the first layers, one after another",
                              layer_freezing_options());
}

}  // namespace entries
}  // namespace composer::algorithms
