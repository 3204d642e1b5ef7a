#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "composer/core/export.h"
#include "composer/surgery/layer.h"

namespace composer {

using Activation = std::function<at::Tensor(const at::Tensor&)>;

// The first part of a feed-forward layer, activation(dense(x)), or with a gate (arXiv:2002.05202)
// activation(gated_layer(x)) * dense(x). algorithms::GatedLinearUnits works on modules that derive from this class.
class COMPOSER_EXPORT FeedForward : public torch::nn::Module {
 public:
  struct Gate {
    Activation activation;              // empty: the activation of this layer
    bool gated_layer_bias = false;      // whether the new layer, to which the activation is applied, has a bias
    bool non_gated_layer_bias = false;  // whether `dense` keeps its bias
  };

  ~FeedForward() override;
  // Returns a copy of this layer with a gate, to replace this one: `dense` has the same weight, the gate has new ones.
  // Everything else is shared.
  virtual Layer with_gate(const Gate& gate) const = 0;
  bool has_gate() const { return static_cast<bool>(gate_); }

 protected:
  // Registers torch::nn::Linear(in, out) under the name `dense_name`.
  FeedForward(std::string dense_name, std::int64_t in, std::int64_t out, Activation activation);
  FeedForward(const FeedForward&) = default;
  FeedForward& operator=(const FeedForward&) = default;

  at::Tensor wide(const at::Tensor& x) const;
  // Implements with_gate() of a derived class.
  template <class M>
  static Layer gated(const M& layer, const Gate& gate) {
    const auto made = std::make_shared<M>(layer);
    made->add_gate(gate);
    return made;
  }

 private:
  void add_gate(const Gate& gate);

  std::string dense_name_;
  Activation activation_;
  Layer dense_, gate_;  // gate_: null without a gate
};

}  // namespace composer
