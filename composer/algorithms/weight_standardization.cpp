#include "composer/algorithms/weight_standardization.h"

#include <memory>
#include <ostream>

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model.h"
#include "composer/core/state.h"

namespace composer::algorithms {
namespace {

namespace nn = torch::nn;

template <class Conv>
struct StandardizedConv final : nn::Module {
  explicit StandardizedConv(const Conv& like) : conv(std::make_shared<Conv>(like)), original(like.weight) {
    if (like.bias.defined()) register_parameter("bias", like.bias, like.bias.requires_grad());
    const auto of_weight = std::make_shared<nn::Module>("ParametrizationList");
    of_weight->register_parameter("original", original, original.requires_grad());
    register_module("parametrizations", std::make_shared<nn::Module>("ModuleDict"))
        ->register_module("weight", of_weight);
  }
  at::Tensor forward(const at::Tensor& x) {
    conv->weight = standardize_weights(original);
    at::Tensor y = conv->forward(x);
    conv->weight.reset();  // it would keep the autograd graph of this batch
    return y;
  }
  void pretty_print(std::ostream& stream) const override { stream << "composer::StandardizedConv"; }

  std::shared_ptr<Conv> conv;  // not registered, because its weight is computed
  at::Tensor original;
};

// Returns the replacement of a convolution; a null Layer if the place holds another module.
template <class Conv>
Layer with_standardized_weight(const Layer& place) {
  const auto* conv = place->as<Conv>();
  return conv ? Layer(std::make_shared<StandardizedConv<Conv>>(*conv)) : Layer();
}

std::vector<Option<WeightStandardizationOptions>> weight_standardization_options() {
  return all_options(option("n_last_layers_ignore", &WeightStandardizationOptions::n_last_layers_ignore).at_least(0));
}

Replacements replace_convs(nn::Module& model, const ReplacementPolicy& policy) {
  return replace_modules<StandardizedConv<nn::Conv1dImpl>, StandardizedConv<nn::Conv2dImpl>,
                         StandardizedConv<nn::Conv3dImpl>>(model, policy);
}

bool is_conv(const Layer& place) {
  return place->as<nn::Conv1dImpl>() || place->as<nn::Conv2dImpl>() || place->as<nn::Conv3dImpl>();
}

}  // namespace

// Uses layer_norm, which computes this in one pass, and in float32 under autocast.
at::Tensor standardize_weights(const at::Tensor& weight) {
  if (weight.dim() == 4 && !weight.is_contiguous() && weight.is_contiguous(at::MemoryFormat::ChannelsLast))
    return standardize_weights(weight.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
  constexpr double kEps = 1e-10;
  const at::Tensor flat = weight.flatten(1);
  return at::layer_norm(flat, {flat.size(1)}, {}, {}, kEps).view(weight.sizes());
}

Replacements weight_standardization(nn::Module& model, const WeightStandardizationOptions& options) {
  check(options, weight_standardization_options(), "WeightStandardization: ", "");
  std::int64_t left = -options.n_last_layers_ignore;
  replace_convs(model, [&left](const std::string&, const Layer& place) -> Layer {
    left += is_conv(place) ? 1 : 0;
    return {};
  });
  return replace_convs(model, [&left](const std::string&, const Layer& place) -> Layer {
    if (!is_conv(place) || left-- <= 0) return {};
    if (Layer made = with_standardized_weight<nn::Conv1dImpl>(place)) return made;
    if (Layer made = with_standardized_weight<nn::Conv2dImpl>(place)) return made;
    return with_standardized_weight<nn::Conv3dImpl>(place);
  });
}

WeightStandardization::WeightStandardization(WeightStandardizationOptions options)
    : SurgeryAlgorithm("WeightStandardization"),
      options_(checked("WeightStandardization", options, weight_standardization_options())) {}

Replacements WeightStandardization::operate(State& state) const {
  return weight_standardization(*state.model, options_);
}

void WeightStandardization::log(const Replacements& done, Logger& logger) const {
  logger.log_hyperparameters(
      {{"WeightStandardization/num_weights_standardized", static_cast<std::int64_t>(done.made.size())}});
}

std::string WeightStandardization::nothing_found() const {
  if (options_.n_last_layers_ignore == 0) return "no convolution";
  return join("no convolution before the last ", options_.n_last_layers_ignore);
}

StateDict WeightStandardization::local_hparams() const { return describe(options_, weight_standardization_options()); }

namespace entries {

Entry<Algorithms> weight_standardization() {
  return entry<WeightStandardization>("weight_standardization", "Lets convolutions use standardized weights",
                                      weight_standardization_options());
}

}  // namespace entries
}  // namespace composer::algorithms
