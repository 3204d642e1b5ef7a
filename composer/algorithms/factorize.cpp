#include "composer/algorithms/factorize.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model.h"
#include "composer/core/state.h"
#include "composer/util/share_of.h"

namespace composer::algorithms {
namespace {

namespace nn = torch::nn;

template <class Holder>
struct Factorized final : nn::Module {
  Factorized(Holder first, Holder second)
      : module0(register_module("module0", std::move(first))), module1(register_module("module1", std::move(second))) {}
  at::Tensor forward(const at::Tensor& x) { return module1->forward(module0->forward(x)); }
  void pretty_print(std::ostream& stream) const override {
    stream << "composer::Factorized(rank=" << module0->weight.size(0) << ")";
  }

  Holder module0, module1;
};

void assign(const at::Tensor& parameter, const at::Tensor& value) {
  parameter.set_data(value.detach().reshape(parameter.sizes()).contiguous());
}

// Makes both parts of a layer with this weight [out, ...] and bias; an undefined bias stands for none.
template <class Holder>
Layer factorized(Holder first, Holder second, const at::Tensor& weight, const at::Tensor& bias, bool keep_weights) {
  if (keep_weights) {
    const LowRankFactors factors = low_rank(weight.detach().flatten(1).t(), first->weight.size(0));
    assign(first->weight, factors.a.t());
    assign(second->weight, factors.b.t());
    for (const at::Tensor& part : {first->weight, second->weight}) part.set_requires_grad(weight.requires_grad());
  }
  if (keep_weights && second->bias.defined()) {
    assign(second->bias, bias.defined() ? bias.detach().clone() : at::zeros({weight.size(0)}, weight.options()));
    second->bias.set_requires_grad(bias.defined() ? bias.requires_grad() : weight.requires_grad());
  }
  return std::make_shared<Factorized<Holder>>(std::move(first), std::move(second));
}

Layer factorized_conv(const nn::Conv2dImpl& conv, const FactorizeOptions& options) {
  const std::int64_t in = conv.options.in_channels(), out = conv.options.out_channels();
  const std::int64_t rank = clean_latent_size(options.latent_channels, in, out);
  const std::int64_t area = conv.weight.size(2) * conv.weight.size(3);
  if (conv.options.groups() != 1 || std::min(in, out) < options.min_channels ||
      rank > max_rank_with_possible_speedup(in, out, area))
    return {};
  auto narrow = nn::Conv2dOptions(in, rank, conv.options.kernel_size())
                    .stride(conv.options.stride())
                    .padding(conv.options.padding())
                    .dilation(conv.options.dilation())
                    .padding_mode(conv.options.padding_mode())
                    .bias(false);
  return factorized(nn::Conv2d(narrow), nn::Conv2d(nn::Conv2dOptions(rank, out, 1)), conv.weight, conv.bias,
                    options.keep_weights);
}

Layer factorized_linear(const nn::LinearImpl& linear, const FactorizeOptions& options) {
  const std::int64_t in = linear.options.in_features(), out = linear.options.out_features();
  const std::int64_t rank = clean_latent_size(options.latent_features, in, out);
  if (std::min(in, out) < options.min_features || rank > max_rank_with_possible_speedup(in, out)) return {};
  const auto wide = nn::LinearOptions(rank, out).bias(linear.bias.defined());
  return factorized(nn::Linear(nn::LinearOptions(in, rank).bias(false)), nn::Linear(wide), linear.weight, linear.bias,
                    options.keep_weights);
}

std::vector<Option<FactorizeOptions>> factorize_options() {
  using O = FactorizeOptions;
  const auto least = [](auto field) { return std::move(field).at_least(1).worded("be at least 1"); };
  return all_options(
      option("factorize_convs", &O::factorize_convs), option("factorize_linears", &O::factorize_linears),
      least(option("min_channels", &O::min_channels)), option("latent_channels", &O::latent_channels).above(0).finite(),
      least(option("min_features", &O::min_features)), option("latent_features", &O::latent_features).above(0).finite(),
      option("keep_weights", &O::keep_weights));
}

void check_factorize(const FactorizeOptions& options) {
  if (!options.factorize_convs && !options.factorize_linears)
    throw ConfigError("Factorize: factorize_convs and factorize_linears are both false; nothing would be replaced");
  check(options, factorize_options(), "Factorize: ", "");
}

template <class Holder>
std::int64_t count_factorized(const Replacements& done) {
  return std::ranges::count_if(done.made,
                               [](const Replacement& one) { return one.place->as<Factorized<Holder>>() != nullptr; });
}

}  // namespace

std::int64_t clean_latent_size(double latent, std::int64_t in, std::int64_t out) {
  if (latent >= 1) return static_cast<std::int64_t>(latent);
  return std::max<std::int64_t>(1, util::share_of(std::min(in, out), latent));
}

// The condition is in * rank + rank * out < in * out.
std::int64_t max_rank_with_possible_speedup(std::int64_t in, std::int64_t out, std::int64_t kernel_area) {
  const std::int64_t inputs = in * kernel_area;
  return (inputs * out + inputs + out - 1) / (inputs + out) - 1;
}

Replacements factorize(nn::Module& model, const FactorizeOptions& options) {
  check_factorize(options);
  return replace_modules<Factorized<nn::Conv2d>, Factorized<nn::Linear>>(
      model, [&options](const std::string&, const Layer& place) -> Layer {
        const auto* conv = options.factorize_convs ? place->as<nn::Conv2dImpl>() : nullptr;
        if (conv) return factorized_conv(*conv, options);
        const auto* linear = options.factorize_linears ? place->as<nn::LinearImpl>() : nullptr;
        return linear ? factorized_linear(*linear, options) : Layer();
      });
}

Factorize::Factorize(FactorizeOptions options) : SurgeryAlgorithm("Factorize"), options_(options) {
  check_factorize(options_);
}

Replacements Factorize::operate(State& state) const { return factorize(*state.model, options_); }

void Factorize::log(const Replacements& done, Logger& logger) const {
  logger.log_hyperparameters({{"factorize/num_conv2d_replacements", count_factorized<nn::Conv2d>(done)},
                              {"factorize/num_linear_replacements", count_factorized<nn::Linear>(done)}});
}

std::string Factorize::nothing_found() const {
  const auto [convs, linears, min_channels, latent_channels, min_features, latent_features, keep] = options_;
  return join(
      convs
          ? join("no 2-d convolution with ", min_channels, " or more channels that ", latent_channels, " saves time in")
          : std::string(),
      convs && linears ? " and " : "",
      linears
          ? join("no linear layer with ", min_features, " or more features that ", latent_features, " saves time in")
          : std::string());
}

StateDict Factorize::local_hparams() const { return describe(options_, factorize_options()); }

namespace entries {

Entry<Algorithms> factorize() {
  return entry<Factorize>("factorize", "Splits large layers into two small ones", factorize_options());
}

}  // namespace entries
}  // namespace composer::algorithms
