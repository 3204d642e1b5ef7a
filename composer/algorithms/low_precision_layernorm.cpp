#include "composer/algorithms/low_precision_layernorm.h"

#include <memory>
#include <ostream>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/modules/normalization.h>

#include "composer/algorithms/autocast_type.h"
#include "composer/core/entry.h"
#include "composer/core/logger.h"
#include "composer/core/model.h"

namespace composer::algorithms {
namespace {

namespace nn = torch::nn;

// Has the parameters of the norm that it replaces.
struct LPLayerNorm final : nn::Module {
  explicit LPLayerNorm(const nn::LayerNormImpl& norm) : options(norm.options), weight(norm.weight), bias(norm.bias) {
    if (weight.defined()) register_parameter("weight", weight, weight.requires_grad());
    if (bias.defined()) register_parameter("bias", bias, bias.requires_grad());
  }
  at::Tensor forward(const at::Tensor& x) const {
    const auto type = autocast_type(x);
    if (!type) return at::layer_norm(x, options.normalized_shape(), weight, bias, options.eps());
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto lowered = [&](const at::Tensor& one) { return one.defined() ? one.to(*type) : one; };
    return at::layer_norm(lowered(x), options.normalized_shape(), lowered(weight), lowered(bias), options.eps());
  }
  void pretty_print(std::ostream& stream) const override { stream << "composer::LPLayerNorm"; }

  nn::LayerNormOptions options;
  at::Tensor weight, bias;  // undefined if the norm has none
};

}  // namespace

Replacements low_precision_layernorm(nn::Module& model, Precision precision) {
  if (precision == Precision::FP32) return {};
  return replace_modules<LPLayerNorm>(model, [](const std::string&, const Layer& place) -> Layer {
    const auto* norm = place->as<nn::LayerNormImpl>();
    return norm ? Layer(std::make_shared<LPLayerNorm>(*norm)) : Layer();
  });
}

LowPrecisionLayerNorm::LowPrecisionLayerNorm() : SurgeryAlgorithm("LowPrecisionLayerNorm") {}

Replacements LowPrecisionLayerNorm::operate(State& state) const {
  return low_precision_layernorm(*state.model, state.precision);
}

void LowPrecisionLayerNorm::log(const Replacements& done, Logger& logger) const {
  logger.log_hyperparameters({{"low_precision_layernorm/num_layers", static_cast<std::int64_t>(done.made.size())}});
}

std::string LowPrecisionLayerNorm::nothing_found() const { return "no layer norm, or the precision is fp32"; }

namespace entries {

Entry<Algorithms> low_precision_layernorm() {
  return entry<LowPrecisionLayerNorm>("low_precision_layernorm", "Computes layer norms in the short type of autocast");
}

}  // namespace entries
}  // namespace composer::algorithms
