#include "composer/algorithms/squeeze_excite.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model.h"
#include "composer/core/state.h"
#include "composer/util/share_of.h"

namespace composer::algorithms {
namespace {

namespace nn = torch::nn;

std::vector<Option<SqueezeExciteOptions>> squeeze_excite_options() {
  using O = SqueezeExciteOptions;
  return all_options(option("latent_channels", &O::latent_channels).above(0).finite(),
                     option("min_channels", &O::min_channels).at_least(1).worded("be at least 1"));
}

void check_squeeze_excite(const SqueezeExciteOptions& options) {
  check(options, squeeze_excite_options(), "SqueezeExcite: ", "");
}

std::int64_t hidden_width(std::int64_t channels, double latent) {
  if (latent >= 1) return static_cast<std::int64_t>(latent);
  return std::max<std::int64_t>(1, util::share_of(channels, latent));
}

nn::Linear without_bias(std::int64_t in, std::int64_t out) {
  return nn::Linear(nn::LinearOptions(in, out).bias(false));
}

struct SqueezeExcite2d final : nn::Module {
  SqueezeExcite2d(std::int64_t channels, std::int64_t hidden)
      : pool_and_mlp(register_module(
            "pool_and_mlp", nn::Sequential(nn::AdaptiveAvgPool2d(1), nn::Flatten(), without_bias(channels, hidden),
                                           nn::ReLU(), without_bias(hidden, channels), nn::Sigmoid()))) {}
  at::Tensor forward(const at::Tensor& x) { return x * pool_and_mlp->forward(x).view({x.size(0), x.size(1), 1, 1}); }
  void pretty_print(std::ostream& stream) const override { stream << "composer::SqueezeExcite2d"; }

  nn::Sequential pool_and_mlp;
};

struct SqueezeExciteConv2d final : nn::Module {
  SqueezeExciteConv2d(const Layer& place, std::int64_t hidden) : conv(place.lift()) {
    register_module("conv", conv.ptr());
    se = std::make_shared<SqueezeExcite2d>(place->as<nn::Conv2dImpl>()->options.out_channels(), hidden);
    register_module("se", se);
  }
  at::Tensor forward(const at::Tensor& x) { return se->forward(conv(x)); }
  void pretty_print(std::ostream& stream) const override { stream << "composer::SqueezeExciteConv2d"; }

  Layer conv;
  std::shared_ptr<SqueezeExcite2d> se;
};

}  // namespace

Layer squeeze_excite_2d(std::int64_t channels, double latent_channels) {
  check_squeeze_excite({.latent_channels = latent_channels});
  if (channels < 1) throw ConfigError("squeeze_excite_2d: channels must be at least 1, got ", channels);
  return std::make_shared<SqueezeExcite2d>(channels, hidden_width(channels, latent_channels));
}

Replacements squeeze_excite(nn::Module& model, const SqueezeExciteOptions& options) {
  check_squeeze_excite(options);
  return replace_modules<SqueezeExciteConv2d>(model, [&](const std::string&, const Layer& place) -> Layer {
    const auto* conv = place->as<nn::Conv2dImpl>();
    if (!conv || std::min(conv->options.in_channels(), conv->options.out_channels()) < options.min_channels) return {};
    return std::make_shared<SqueezeExciteConv2d>(place,
                                                 hidden_width(conv->options.out_channels(), options.latent_channels));
  });
}

SqueezeExcite::SqueezeExcite(SqueezeExciteOptions options) : SurgeryAlgorithm("SqueezeExcite"), options_(options) {
  check_squeeze_excite(options_);
}

Replacements SqueezeExcite::operate(State& state) const { return squeeze_excite(*state.model, options_); }

void SqueezeExcite::log(const Replacements& done, Logger& logger) const {
  logger.log_hyperparameters(
      {{"squeeze_excite/num_squeeze_excite_layers", static_cast<std::int64_t>(done.made.size())}});
}

std::string SqueezeExcite::nothing_found() const {
  return join("no 2-d convolution with ", options_.min_channels, " or more input and output channels");
}

StateDict SqueezeExcite::local_hparams() const { return describe(options_, squeeze_excite_options()); }

namespace entries {

Entry<Algorithms> squeeze_excite() {
  return entry<SqueezeExcite>("squeeze_excite", "Weighs the channels of convolutions by what is in them",
                              squeeze_excite_options());
}

}  // namespace entries
}  // namespace composer::algorithms
