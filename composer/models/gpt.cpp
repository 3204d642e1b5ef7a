#include "composer/models/gpt.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/models/language_model.h"
#include "composer/surgery/feed_forward.h"
#include "composer/surgery/layer.h"
#include "composer/surgery/position_bias.h"

namespace composer::models {
namespace {

using torch::nn::LayerNorm;
using torch::nn::Linear;

LayerNorm gpt_layer_norm(std::int64_t width) { return LayerNorm(torch::nn::LayerNormOptions({width})); }

class GptAttention : public torch::nn::Module {
 public:
  // `bias` is the model's; empty unless it replaces the learned positions.
  GptAttention(const GptOptions& options, const PositionBias& bias)
      : heads_(options.heads),
        bias_(&bias),
        c_attn_(this, "c_attn", Linear(options.width, 3 * options.width)),
        c_proj_(this, "c_proj", Linear(options.width, options.width)) {}

  at::Tensor forward(const at::Tensor& x) {
    const std::int64_t samples = x.size(0), tokens = x.size(1), width = x.size(2);
    const at::Tensor all = c_attn_(x).view({samples, tokens, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
    std::optional<at::Tensor> bias;
    if (*bias_) bias = (*bias_)(tokens, all);
    const at::Tensor y =
        at::scaled_dot_product_attention(all[0], all[1], all[2], bias, /*dropout_p=*/0, /*is_causal=*/!bias);
    return c_proj_(y.transpose(1, 2).reshape({samples, tokens, width}));
  }

 private:
  std::int64_t heads_;
  const PositionBias* bias_;
  Layer c_attn_, c_proj_;
};

class GptMlp final : public FeedForward {
 public:
  explicit GptMlp(std::int64_t width)
      : FeedForward("c_fc", width, 4 * width, [](const at::Tensor& x) { return at::gelu(x, "tanh"); }),
        c_proj_(this, "c_proj", Linear(4 * width, width)) {}
  at::Tensor forward(const at::Tensor& x) { return c_proj_(wide(x)); }
  Layer with_gate(const Gate& gate) const override { return gated(*this, gate); }

 private:
  Layer c_proj_;
};

class GptBlock : public torch::nn::Module {
 public:
  GptBlock(const GptOptions& options, const PositionBias& bias)
      : ln_1_(this, "ln_1", gpt_layer_norm(options.width)),
        attn_(this, "attn", std::make_shared<GptAttention>(options, bias)),
        ln_2_(this, "ln_2", gpt_layer_norm(options.width)),
        mlp_(this, "mlp", std::make_shared<GptMlp>(options.width)) {}

  at::Tensor forward(at::Tensor x) {
    x = x + attn_(ln_1_(x));
    return x + mlp_(ln_2_(x));
  }

 private:
  Layer ln_1_, attn_, ln_2_, mlp_;
};

class Gpt : public torch::nn::Module, public LearnsPositions {
 public:
  explicit Gpt(const GptOptions& options)
      : heads_(options.heads),
        longest_(options.sequence_length),
        wte_(options.vocabulary, options.width),
        wpe_(options.sequence_length, options.width) {
    register_module("wte", wte_);
    register_module("wpe", wpe_);
    torch::nn::Sequential h;
    for (std::int64_t i = 0; i < options.depth; ++i) {
      blocks_.emplace_back(std::make_shared<GptBlock>(options, bias_));
      h->push_back(blocks_.back());
    }
    register_module("h", h);
    ln_f_ = Layer(this, "ln_f", gpt_layer_norm(options.width));
    if (!options.tied)
      lm_head_ =
          Layer(this, "lm_head", Linear(torch::nn::LinearOptions(options.width, options.vocabulary).bias(false)));
    initialise(options.depth);
  }

  at::Tensor forward(const at::Tensor& tokens) {
    if (tokens.dim() != 2 || tokens.size(1) > longest_)
      throw DataError("gpt: expected tokens [N, T] with T <= ", longest_, ", got ", tokens.sizes());
    at::Tensor x = wte_->forward(tokens);
    if (wpe_) x = x + wpe_->weight.narrow(0, 0, tokens.size(1));
    for (const Layer& block : blocks_) x = block(x);
    x = ln_f_(x);
    return lm_head_ ? lm_head_(x) : at::linear(x, wte_->weight);
  }

  std::int64_t attention_heads() const override { return heads_; }
  bool is_causal() const override { return true; }
  bool set_position_bias(PositionBias bias, std::int64_t max_tokens) override {
    if (bias_) return false;
    bias_ = std::move(bias);
    longest_ = max_tokens;
    unregister_module("wpe");
    wpe_ = nullptr;
    return true;
  }

 private:
  // Scales down the initial matrices that add to the residual stream, depending on the number of blocks.
  void initialise(std::int64_t depth) {
    constexpr double kStddev = 0.02;
    for (auto& parameter : named_parameters()) {
      const std::string& name = parameter.key();
      if (name.ends_with("bias")) {
        torch::nn::init::zeros_(parameter.value());
      } else if (parameter.value().dim() == 2) {
        const bool residual = name.ends_with("c_proj.weight");
        const double shrink = residual ? std::sqrt(2 * static_cast<double>(depth)) : 1;
        torch::nn::init::normal_(parameter.value(), 0, kStddev / shrink);
      }
    }
  }

  std::int64_t heads_, longest_;
  PositionBias bias_;  // empty: positions are learned
  torch::nn::Embedding wte_, wpe_;
  std::vector<Layer> blocks_;
  Layer ln_f_, lm_head_;
};

std::vector<Option<GptOptions>> gpt_options() {
  using O = GptOptions;
  return all_options(option("vocabulary", &O::vocabulary).at_least(1),
                     option("sequence_length", &O::sequence_length).at_least(1), option("width", &O::width).at_least(1),
                     option("depth", &O::depth).at_least(1), option("heads", &O::heads).at_least(1),
                     option("tied", &O::tied), option("label_smoothing", &O::label_smoothing).from_to(0, 1));
}

}  // namespace

std::shared_ptr<Classifier> gpt(GptOptions options) {
  const auto described = gpt_options();
  check(options, described, "gpt: ", "");
  const std::int64_t width = options.width, heads = options.heads;
  if (width % heads != 0) throw ConfigError("gpt: width must be a multiple of heads (", heads, "), got ", width);
  ClassifierOptions classifier =
      classifier_options({.label_smoothing = options.label_smoothing, .hyperparameters = describe(options, described)});
  classifier.num_classes = options.vocabulary;
  return std::make_shared<Classifier>(std::make_shared<Gpt>(options), std::move(classifier));
}

}  // namespace composer::models
