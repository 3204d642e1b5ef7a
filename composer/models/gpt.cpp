#include "composer/models/gpt.h"

#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/metrics/language.h"
#include "composer/surgery/layer.h"
#include "composer/util/loss.h"

namespace composer::models {
namespace {

using torch::nn::LayerNorm;
using torch::nn::Linear;

LayerNorm layer_norm(std::int64_t width) { return LayerNorm(torch::nn::LayerNormOptions({width})); }

class Attention : public torch::nn::Module {
 public:
  explicit Attention(const GptOptions& options)
      : heads_(options.heads),
        c_attn_(this, "c_attn", Linear(options.width, 3 * options.width)),
        c_proj_(this, "c_proj", Linear(options.width, options.width)) {}

  at::Tensor forward(const at::Tensor& x) {
    const std::int64_t samples = x.size(0), tokens = x.size(1), width = x.size(2);
    const at::Tensor all = c_attn_(x).view({samples, tokens, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
    const at::Tensor y =
        at::scaled_dot_product_attention(all[0], all[1], all[2], {}, /*dropout_p=*/0, /*is_causal=*/true);
    return c_proj_(y.transpose(1, 2).reshape({samples, tokens, width}));
  }

 private:
  std::int64_t heads_;
  Layer c_attn_, c_proj_;
};

class FeedForward : public torch::nn::Module {
 public:
  explicit FeedForward(std::int64_t width)
      : c_fc_(this, "c_fc", Linear(width, 4 * width)), c_proj_(this, "c_proj", Linear(4 * width, width)) {}
  at::Tensor forward(const at::Tensor& x) { return c_proj_(at::gelu(c_fc_(x), "tanh")); }

 private:
  Layer c_fc_, c_proj_;
};

class Block : public torch::nn::Module {
 public:
  explicit Block(const GptOptions& options)
      : ln_1_(this, "ln_1", layer_norm(options.width)),
        attn_(this, "attn", std::make_shared<Attention>(options)),
        ln_2_(this, "ln_2", layer_norm(options.width)),
        mlp_(this, "mlp", std::make_shared<FeedForward>(options.width)) {}

  at::Tensor forward(at::Tensor x) {
    x = x + attn_(ln_1_(x));
    return x + mlp_(ln_2_(x));
  }

 private:
  Layer ln_1_, attn_, ln_2_, mlp_;
};

class Gpt : public torch::nn::Module {
 public:
  explicit Gpt(const GptOptions& options)
      : wte_(options.vocabulary, options.width), wpe_(options.sequence_length, options.width) {
    register_module("wte", wte_);
    register_module("wpe", wpe_);
    torch::nn::Sequential h;
    for (std::int64_t i = 0; i < options.depth; ++i) {
      blocks_.emplace_back(std::make_shared<Block>(options));
      h->push_back(blocks_.back());
    }
    register_module("h", h);
    ln_f_ = Layer(this, "ln_f", layer_norm(options.width));
    if (!options.tied)
      lm_head_ =
          Layer(this, "lm_head", Linear(torch::nn::LinearOptions(options.width, options.vocabulary).bias(false)));
    initialise(options.depth);
  }

  at::Tensor forward(const at::Tensor& tokens) {
    const std::int64_t longest = wpe_->weight.size(0);
    if (tokens.dim() != 2 || tokens.size(1) > longest)
      throw DataError("gpt: expected tokens [N, T] with T <= ", longest, ", got ", tokens.sizes());
    at::Tensor x = wte_->forward(tokens) + wpe_->weight.narrow(0, 0, tokens.size(1));
    for (const Layer& block : blocks_) x = block(x);
    x = ln_f_(x);
    return lm_head_ ? lm_head_(x) : at::linear(x, wte_->weight);
  }

 private:
  // Matrices that add to the residual stream start smaller, the more there are.
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

  torch::nn::Embedding wte_, wpe_;
  std::vector<Layer> blocks_;
  Layer ln_f_, lm_head_;
};

}  // namespace

std::shared_ptr<Classifier> gpt(GptOptions options) {
  const auto& [vocabulary, sequence_length, width, depth, heads, tied, smoothing] = options;
  for (const auto& [name, value] : {std::pair{"vocabulary", vocabulary},
                                    {"sequence_length", sequence_length},
                                    {"width", width},
                                    {"depth", depth},
                                    {"heads", heads}})
    if (value < 1) throw ConfigError("gpt: ", name, " must be >= 1, got ", value);
  if (!(smoothing >= 0 && smoothing <= 1))
    throw ConfigError("gpt: label_smoothing must be from 0 to 1, got ", smoothing);
  if (width % heads != 0) throw ConfigError("gpt: width must be a multiple of heads (", heads, "), got ", width);
  return std::make_shared<Classifier>(
      std::make_shared<Gpt>(options),
      ClassifierOptions{
          .num_classes = vocabulary,
          .train_metrics = Metrics(metrics::LanguageCrossEntropy()),
          .val_metrics = Metrics(metrics::LanguageCrossEntropy(), metrics::LanguagePerplexity()),
          .loss_fn =
              [smoothing](const at::Tensor& logits, const at::Tensor& target) {
                const at::Tensor flat = logits.flatten(0, 1), next = target.flatten();
                if (smoothing == 0) return soft_cross_entropy(flat, next);
                return at::cross_entropy_loss(flat, next, {}, at::Reduction::Mean, -100, smoothing);
              },
          .input = "input_ids",
          .hyperparameters = describe(
              options, {option("vocabulary", &GptOptions::vocabulary),
                        option("sequence_length", &GptOptions::sequence_length), option("width", &GptOptions::width),
                        option("depth", &GptOptions::depth), option("heads", &GptOptions::heads),
                        option("tied", &GptOptions::tied), option("label_smoothing", &GptOptions::label_smoothing)})});
}

}  // namespace composer::models
