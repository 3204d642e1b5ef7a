#include "composer/algorithms/low_precision_groupnorm.h"

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
struct LPGroupNorm final : nn::Module {
  explicit LPGroupNorm(const nn::GroupNormImpl& norm) : options(norm.options), weight(norm.weight), bias(norm.bias) {
    if (weight.defined()) register_parameter("weight", weight, weight.requires_grad());
    if (bias.defined()) register_parameter("bias", bias, bias.requires_grad());
  }
  at::Tensor forward(const at::Tensor& x) const {
    const auto type = autocast_type(x);
    if (!type) return at::group_norm(x, options.num_groups(), weight, bias, options.eps());
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto lowered = [&](const at::Tensor& one) { return one.defined() ? one.to(*type) : one; };
    return at::group_norm(lowered(x), options.num_groups(), lowered(weight), lowered(bias), options.eps());
  }
  void pretty_print(std::ostream& stream) const override { stream << "composer::LPGroupNorm"; }

  nn::GroupNormOptions options;
  at::Tensor weight, bias;  // undefined if the norm has none
};

}  // namespace

Replacements low_precision_groupnorm(nn::Module& model, Precision precision) {
  if (precision == Precision::FP32) return {};
  return replace_modules<LPGroupNorm>(model, [](const std::string&, const Layer& place) -> Layer {
    const auto* norm = place->as<nn::GroupNormImpl>();
    return norm ? Layer(std::make_shared<LPGroupNorm>(*norm)) : Layer();
  });
}

LowPrecisionGroupNorm::LowPrecisionGroupNorm() : SurgeryAlgorithm("LowPrecisionGroupNorm") {}

Replacements LowPrecisionGroupNorm::operate(State& state) const {
  return low_precision_groupnorm(*state.model, state.precision);
}

void LowPrecisionGroupNorm::log(const Replacements& done, Logger& logger) const {
  logger.log_hyperparameters({{"low_precision_groupnorm/num_layers", static_cast<std::int64_t>(done.made.size())}});
}

std::string LowPrecisionGroupNorm::nothing_found() const { return "no group norm, or the precision is fp32"; }

namespace entries {

Entry<Algorithms> low_precision_groupnorm() {
  return entry<LowPrecisionGroupNorm>("low_precision_groupnorm", "Computes group norms in the short type of autocast");
}

}  // namespace entries
}  // namespace composer::algorithms
