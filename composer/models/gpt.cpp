#include "composer/models/gpt.h"

#include <cmath>
#include <limits>
#include <memory>
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
#include "composer/models/incremental_decoder.h"
#include "composer/models/language_model.h"
#include "composer/models/positions.h"
#include "composer/models/ready.h"
#include "composer/models/token_range.h"
#include "composer/surgery/feed_forward.h"
#include "composer/surgery/layer.h"
#include "composer/surgery/position_bias.h"

namespace composer::models {
namespace {

using torch::nn::LayerNorm;
using torch::nn::Linear;

LayerNorm gpt_layer_norm(std::int64_t width) { return LayerNorm(torch::nn::LayerNormOptions({width})); }

// The keys and values of the tokens that one attention has seen, [N, heads, capacity, width / heads]; undefined: of
// none.
struct KeptTokens {
  at::Tensor keys, values;
};

class GptAttention : public torch::nn::Module {
 public:
  // `bias` is the model's; empty unless it replaces the learned positions.
  GptAttention(const GptOptions& options, const PositionBias& bias)
      : heads_(options.heads),
        bias_(&bias),
        c_attn_(this, "c_attn", Linear(options.width, 3 * options.width)),
        c_proj_(this, "c_proj", Linear(options.width, options.width)) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor all = queries_keys_values(x);
    std::optional<at::Tensor> bias;
    if (*bias_) bias = (*bias_)(x.size(1), all);
    return output(at::scaled_dot_product_attention(all[0], all[1], all[2], bias, /*dropout_p=*/0,
                                                   /*is_causal=*/!bias));
  }

  // Attention of the tokens of `x` to the `before` tokens that were seen, and to each other.
  at::Tensor append(const at::Tensor& x, KeptTokens& kept, std::int64_t before, std::int64_t capacity,
                    const std::optional<at::Tensor>& mask) {
    const at::Tensor all = queries_keys_values(x);
    const std::int64_t tokens = x.size(1);
    if (!kept.keys.defined()) {
      kept.keys = at::empty({x.size(0), heads_, capacity, x.size(2) / heads_}, all.options());
      kept.values = at::empty_like(kept.keys);
    }
    kept.keys.narrow(2, before, tokens).copy_(all[1]);
    kept.values.narrow(2, before, tokens).copy_(all[2]);
    const bool is_causal = !mask && before == 0;  // one token after others sees all of them
    return output(at::scaled_dot_product_attention(all[0], kept.keys.narrow(2, 0, before + tokens),
                                                   kept.values.narrow(2, 0, before + tokens), mask,
                                                   /*dropout_p=*/0, is_causal));
  }

 private:
  at::Tensor queries_keys_values(const at::Tensor& x) const {
    return c_attn_(x).unflatten(2, {3, heads_, x.size(2) / heads_}).permute({2, 0, 3, 1, 4});
  }
  at::Tensor output(const at::Tensor& y) const { return c_proj_(y.transpose(1, 2).flatten(2)); }

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

  // Null if it was replaced.
  GptAttention* attention() const { return attn_->as<GptAttention>(); }
  at::Tensor append(at::Tensor x, KeptTokens& kept, std::int64_t before, std::int64_t capacity,
                    const std::optional<at::Tensor>& mask) {
    x = x + attention()->append(ln_1_(x), kept, before, capacity, mask);
    return x + mlp_(ln_2_(x));
  }

 private:
  Layer ln_1_, attn_, ln_2_, mlp_;
};

class Gpt : public torch::nn::Module, public LearnsPositions, public IncrementalDecoder {
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
    at::Tensor x = embedded(tokens);
    if (wpe_) x = x + detail::first_rows(wpe_->weight, tokens);
    for (const Layer& block : blocks_) x = block(x);
    return head(x);
  }

  std::int64_t max_tokens() const override { return longest_; }
  std::unique_ptr<Texts> begin(std::int64_t texts, std::int64_t capacity, const at::Tensor& padding) override;

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

  class GptTexts;

  at::Tensor embedded(const at::Tensor& tokens) {
    return detail::looked_up(tokens, wte_->weight.size(0), {"gpt", "token", "the tokens of its vocabulary are"},
                             [&] { return wte_->forward(tokens); });
  }

  at::Tensor head(const at::Tensor& x) {
    const at::Tensor y = ln_f_(x);
    return lm_head_ ? lm_head_(y) : at::linear(y, wte_->weight);
  }

  std::int64_t heads_, longest_;
  PositionBias bias_;  // empty: positions are learned
  torch::nn::Embedding wte_, wpe_;
  std::vector<Layer> blocks_;
  Layer ln_f_, lm_head_;
};

class Gpt::GptTexts final : public IncrementalDecoder::Texts {
 public:
  GptTexts(Gpt& gpt, std::vector<GptBlock*> blocks, std::int64_t capacity, at::Tensor padding)
      : gpt_(gpt),
        blocks_(std::move(blocks)),
        kept_(blocks_.size()),
        capacity_(capacity),
        padding_(std::move(padding)) {}

  at::Tensor append(const at::Tensor& tokens) override {
    const std::int64_t count = tokens.size(1);
    if (seen_ + count > capacity_)
      throw DataError("gpt: texts of ", seen_, " tokens have no room for ", count, "; their capacity is ", capacity_);
    at::Tensor x = gpt_.embedded(tokens);
    if (gpt_.wpe_) x = x + positions(count);
    const std::optional<at::Tensor> allowed = mask(x, count);
    for (std::size_t i = 0; i < blocks_.size(); ++i) x = blocks_[i]->append(x, kept_[i], seen_, capacity_, allowed);
    seen_ += count;
    return gpt_.head(x.narrow(1, count - 1, 1)).squeeze(1);
  }

 private:
  at::Tensor positions(std::int64_t count) const {
    if (!padding_.defined()) return gpt_.wpe_->weight.narrow(0, seen_, count);
    return gpt_.wpe_->forward((columns(seen_, count) - padding_.unsqueeze(1)).clamp_min(0));
  }
  at::Tensor columns(std::int64_t first, std::int64_t count) const {
    return at::arange(first, first + count,
                      padding_.defined() ? padding_.options() : gpt_.wte_->weight.options().dtype(at::kLong));
  }

  // What is added to scores [N, heads, count, seen_ + count]; empty if is_causal, or one token that sees all others,
  // says enough.
  std::optional<at::Tensor> mask(const at::Tensor& like, std::int64_t count) {
    const std::int64_t all = seen_ + count;
    at::Tensor sum;
    if (gpt_.bias_) {
      if (!bias_.defined()) bias_ = gpt_.bias_(capacity_, like);
      sum = bias_.narrow(2, seen_, count).narrow(3, 0, all);
    } else if (!padding_.defined() && (count == 1 || seen_ == 0)) {
      return std::nullopt;
    } else {
      sum = hidden(like, columns(0, all).unsqueeze(0) > columns(seen_, count).unsqueeze(1));
    }
    if (padding_.defined()) {
      // Padding sees itself, because scores that are all -inf would give NaN.
      const at::Tensor keys = columns(0, all).view({1, 1, 1, all});
      sum =
          sum +
          hidden(
              like,
              (keys < padding_.view({-1, 1, 1, 1})).logical_and(keys != columns(seen_, count).view({1, 1, count, 1})));
    }
    return sum;
  }
  static at::Tensor hidden(const at::Tensor& like, const at::Tensor& where) {
    return at::zeros(where.sizes(), like.options()).masked_fill_(where, -std::numeric_limits<double>::infinity());
  }

  Gpt& gpt_;
  std::vector<GptBlock*> blocks_;
  std::vector<KeptTokens> kept_;
  std::int64_t capacity_, seen_ = 0;
  at::Tensor padding_;  // [N]; undefined: none
  at::Tensor bias_;     // of the capacity, if the model has one
};

std::unique_ptr<IncrementalDecoder::Texts> Gpt::begin(std::int64_t, std::int64_t capacity, const at::Tensor& padding) {
  std::vector<GptBlock*> blocks;
  for (const Layer& layer : blocks_) {
    blocks.push_back(layer->as<GptBlock>());
    if (!blocks.back() || !blocks.back()->attention()) return nullptr;
  }
  return std::make_unique<GptTexts>(*this, std::move(blocks), capacity, padding);
}

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
  classifier.ready = "gpt";
  return std::make_shared<Classifier>(std::make_shared<Gpt>(options), std::move(classifier));
}

namespace entries {

Entry<ReadyModel> gpt() { return ready_model("gpt", "A language model", gpt_options(), models::gpt); }

}  // namespace entries

}  // namespace composer::models
