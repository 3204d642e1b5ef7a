#include "composer/algorithms/gated_linear_units.h"

#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model.h"
#include "composer/core/state.h"

namespace composer::algorithms {
namespace {

Activation activation(const std::string& name) {
  static const std::map<std::string, Activation> known = {
      {"", {}},
      {"gelu", [](const at::Tensor& x) { return at::gelu(x); }},
      {"gelu_tanh", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {"relu", [](const at::Tensor& x) { return at::relu(x); }},
      {"sigmoid", [](const at::Tensor& x) { return at::sigmoid(x); }},
      {"silu", [](const at::Tensor& x) { return at::silu(x); }}};
  const auto found = known.find(name);
  if (found == known.end())
    throw ConfigError("GatedLinearUnits: act_fn must be gelu, gelu_tanh, relu, sigmoid, silu or empty, got \"", name,
                      '"');
  return found->second;
}

std::vector<Option<GatedLinearUnitsOptions>> gated_linear_units_options() {
  using O = GatedLinearUnitsOptions;
  return all_options(option("act_fn", &O::act_fn).refuses({"foo"}), option("gated_layer_bias", &O::gated_layer_bias),
                     option("non_gated_layer_bias", &O::non_gated_layer_bias));
}

}  // namespace

Replacements gated_linear_units(torch::nn::Module& model, const GatedLinearUnitsOptions& options) {
  const FeedForward::Gate gate{activation(options.act_fn), options.gated_layer_bias, options.non_gated_layer_bias};
  return replace_modules(model, [&gate](const std::string&, const Layer& place) -> Layer {
    const auto* layer = place->as<FeedForward>();
    return layer && !layer->has_gate() ? layer->with_gate(gate) : Layer();
  });
}

GatedLinearUnits::GatedLinearUnits(GatedLinearUnitsOptions options)
    : SurgeryAlgorithm("GatedLinearUnits"), options_(std::move(options)) {
  activation(options_.act_fn);
}

Replacements GatedLinearUnits::operate(State& state) const { return gated_linear_units(*state.model, options_); }

void GatedLinearUnits::log(const Replacements& done, Logger& logger) const {
  logger.log_hyperparameters({{"gated_linear_units/num_layers", static_cast<std::int64_t>(done.made.size())}});
}

std::string GatedLinearUnits::nothing_found() const {
  return "no layer that derives from composer::FeedForward and has no gate yet";
}

StateDict GatedLinearUnits::local_hparams() const { return describe(options_, gated_linear_units_options()); }

namespace entries {

Entry<Algorithms> gated_linear_units() {
  return entry<GatedLinearUnits>("gated_linear_units", "Gives feed-forward layers a gate",
                                 gated_linear_units_options());
}

}  // namespace entries
}  // namespace composer::algorithms
