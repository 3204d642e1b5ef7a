#include "composer/surgery/feed_forward.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"

namespace composer {

FeedForward::FeedForward(std::string dense_name, std::int64_t in, std::int64_t out, Activation activation)
    : dense_name_(std::move(dense_name)),
      activation_(std::move(activation)),
      dense_(this, dense_name_, torch::nn::Linear(in, out)) {}

FeedForward::~FeedForward() = default;

at::Tensor FeedForward::wide(const at::Tensor& x) const {
  return gate_ ? activation_(gate_(x)) * dense_(x) : activation_(dense_(x));
}

void FeedForward::add_gate(const Gate& gate) {
  if (gate_) throw ConfigError("FeedForward: has a gate already");
  const auto dense = dense_->get<torch::nn::Linear>();
  if (!dense)
    throw ConfigError("FeedForward: \"", dense_name_, "\" was replaced, by ", dense_->module()->name(),
                      "; add the gate first");
  if (gate.activation) activation_ = gate.activation;
  const std::int64_t in = dense->options.in_features(), out = dense->options.out_features();
  if (!gate.non_gated_layer_bias && dense->options.bias()) {
    const torch::nn::Linear without(torch::nn::LinearOptions(in, out).bias(false));
    without->weight.set_data(dense->weight.detach());
    without->weight.set_requires_grad(dense->weight.requires_grad());
    dense_ = Layer(without);
    replace_module(dense_name_, dense_.ptr());
  }
  gate_ = Layer(this, "gated_layer", torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(gate.gated_layer_bias)));
}

}  // namespace composer
