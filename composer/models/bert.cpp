#include "composer/models/bert.h"

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/models/positions.h"
#include "composer/models/ready.h"
#include "composer/models/token_range.h"
#include "composer/surgery/feed_forward.h"
#include "composer/surgery/layer.h"
#include "composer/surgery/position_bias.h"

namespace composer::models {
namespace {

using torch::nn::Dropout;
using torch::nn::Embedding;
using torch::nn::EmbeddingOptions;
using torch::nn::Linear;

torch::nn::LayerNorm bert_layer_norm(std::int64_t width) {
  constexpr double kEps = 1e-12;
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(kEps));
}

class Embeddings final : public torch::nn::Module {
 public:
  explicit Embeddings(const BertOptions& options)
      : longest_(options.sequence_length),
        word_(EmbeddingOptions(options.vocabulary, options.width).padding_idx(0)),
        position_(options.sequence_length, options.width),
        type_(options.token_types, options.width) {
    register_module("word_embeddings", word_);
    register_module("position_embeddings", position_);
    register_module("token_type_embeddings", type_);
    norm_ = Layer(this, "LayerNorm", bert_layer_norm(options.width));
    dropout_ = Layer(this, "dropout", Dropout(options.dropout));
  }

  at::Tensor forward(const at::Tensor& tokens, const at::Tensor* types) {
    if (tokens.dim() != 2 || tokens.size(1) > longest_)
      throw DataError("bert: expected input_ids [N, T] with T <= ", longest_, ", got ", tokens.sizes());
    const at::Tensor of_type =
        types ? looked_up(type_, *types, {"bert", "type", "the types of tokens are"}) : type_->weight[0];
    at::Tensor x = looked_up(word_, tokens, {"bert", "token", "the tokens of its vocabulary are"}) + of_type;
    if (position_) x = x + detail::first_rows(position_->weight, tokens);
    return dropout_(norm_(x));
  }
  void remove_positions(std::int64_t longest) {
    longest_ = longest;
    unregister_module("position_embeddings");
    position_ = nullptr;
  }

 private:
  static at::Tensor looked_up(Embedding& table, const at::Tensor& numbers, const detail::NumbersOf& of) {
    return detail::looked_up(numbers, table->weight.size(0), of, [&] { return table->forward(numbers); });
  }

  std::int64_t longest_;
  Embedding word_, position_, type_;
  Layer norm_, dropout_;
};

class BertSelfAttention final : public torch::nn::Module {
 public:
  explicit BertSelfAttention(const BertOptions& options)
      : heads_(options.heads),
        dropout_(options.attention_dropout),
        query_(this, "query", Linear(options.width, options.width)),
        key_(this, "key", Linear(options.width, options.width)),
        value_(this, "value", Linear(options.width, options.width)) {}

  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& mask) {
    const auto split = [this](const at::Tensor& y) {
      return y.unflatten(2, {heads_, y.size(2) / heads_}).transpose(1, 2);
    };
    return at::scaled_dot_product_attention(split(query_(x)), split(key_(x)), split(value_(x)), mask,
                                            is_training() ? dropout_ : 0)
        .transpose(1, 2)
        .flatten(2);
  }

 private:
  std::int64_t heads_;
  double dropout_;
  Layer query_, key_, value_;
};

// The layers after attention or the feed-forward layer: a projection to the width of the block, plus the block's input.
class Output final : public torch::nn::Module {
 public:
  Output(std::int64_t in, std::int64_t width, double dropout)
      : dense_(this, "dense", Linear(in, width)),
        norm_(this, "LayerNorm", bert_layer_norm(width)),
        dropout_(this, "dropout", Dropout(dropout)) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& before) { return norm_(dropout_(dense_(x)) + before); }

 private:
  Layer dense_, norm_, dropout_;
};

class BertAttention final : public torch::nn::Module {
 public:
  explicit BertAttention(const BertOptions& options)
      : self_(register_module("self", std::make_shared<BertSelfAttention>(options))),
        output_(register_module("output", std::make_shared<Output>(options.width, options.width, options.dropout))) {}

  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& mask) {
    return output_->forward(self_->forward(x, mask), x);
  }

 private:
  std::shared_ptr<BertSelfAttention> self_;
  std::shared_ptr<Output> output_;
};

class Intermediate final : public FeedForward {
 public:
  Intermediate(std::int64_t width, std::int64_t inner)
      : FeedForward("dense", width, inner, [](const at::Tensor& x) { return at::gelu(x); }) {}
  at::Tensor forward(const at::Tensor& x) { return wide(x); }
  Layer with_gate(const Gate& gate) const override { return gated(*this, gate); }
};

class BertBlock final : public torch::nn::Module {
 public:
  BertBlock(const BertOptions& options, std::int64_t inner)
      : attention_(register_module("attention", std::make_shared<BertAttention>(options))),
        intermediate_(this, "intermediate", std::make_shared<Intermediate>(options.width, inner)),
        output_(register_module("output", std::make_shared<Output>(inner, options.width, options.dropout))) {}

  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& mask) {
    const at::Tensor attended = attention_->forward(x, mask);
    return output_->forward(intermediate_(attended), attended);
  }

 private:
  std::shared_ptr<BertAttention> attention_;
  Layer intermediate_;
  std::shared_ptr<Output> output_;
};

class BertEncoder final : public torch::nn::Module {
 public:
  BertEncoder(const BertOptions& options, std::int64_t inner) {
    torch::nn::ModuleList layers;
    for (std::int64_t i = 0; i < options.depth; ++i) {
      blocks_.push_back(std::make_shared<BertBlock>(options, inner));
      layers->push_back(blocks_.back());
    }
    register_module("layer", layers);
  }

  at::Tensor forward(at::Tensor x, const std::optional<at::Tensor>& mask) {
    for (const auto& block : blocks_) x = block->forward(x, mask);
    return x;
  }

 private:
  std::vector<std::shared_ptr<BertBlock>> blocks_;
};

class Pooler final : public torch::nn::Module {
 public:
  explicit Pooler(std::int64_t width) : dense_(this, "dense", Linear(width, width)) {}
  at::Tensor forward(const at::Tensor& x) { return dense_(x.select(1, 0)).tanh(); }

 private:
  Layer dense_;
};

class Body final : public torch::nn::Module, public LearnsPositions {
 public:
  Body(const BertOptions& options, std::int64_t inner)
      : heads_(options.heads),
        embeddings_(register_module("embeddings", std::make_shared<Embeddings>(options))),
        encoder_(register_module("encoder", std::make_shared<BertEncoder>(options, inner))),
        pooler_(this, "pooler", std::make_shared<Pooler>(options.width)) {}

  at::Tensor forward(const at::Tensor& tokens, const at::Tensor* types, const at::Tensor* kept) {
    // The keys that each token sees, bool [N, 1, 1, T]; with a bias on the scores, that bias with -inf at padding, [1
    // or N, heads, T, T].
    std::optional<at::Tensor> mask;
    if (kept) {
      if (kept->sizes() != tokens.sizes())
        throw DataError("bert: attention_mask must have the shape of input_ids, ", tokens.sizes(), ", got ",
                        kept->sizes());
      mask = kept->to(at::kBool).unsqueeze(1).unsqueeze(1);
    }
    const at::Tensor x = embeddings_->forward(tokens, types);
    if (bias_) {
      constexpr double kNever = -std::numeric_limits<double>::infinity();
      const at::Tensor bias = bias_(tokens.size(1), x);
      mask = mask ? bias.masked_fill(mask->logical_not(), kNever) : bias;
    }
    return pooler_(encoder_->forward(x, mask));
  }

  std::int64_t attention_heads() const override { return heads_; }
  bool is_causal() const override { return false; }
  bool set_position_bias(PositionBias bias, std::int64_t max_tokens) override {
    if (bias_) return false;
    bias_ = std::move(bias);
    embeddings_->remove_positions(max_tokens);
    return true;
  }

 private:
  std::int64_t heads_;
  PositionBias bias_;  // empty: positions are learned
  std::shared_ptr<Embeddings> embeddings_;
  std::shared_ptr<BertEncoder> encoder_;
  Layer pooler_;
};

class Bert final : public torch::nn::Module {
 public:
  Bert(const BertOptions& options, std::int64_t inner)
      : bert_(register_module("bert", std::make_shared<Body>(options, inner))),
        dropout_(this, "dropout", Dropout(options.dropout)),
        classifier_(this, "classifier", Linear(options.width, options.num_classes)) {
    initialise();
  }

  at::Tensor forward(const Batch& batch) {
    return classifier_(
        dropout_(bert_->forward(batch.at("input_ids"), batch.find("token_type_ids"), batch.find("attention_mask"))));
  }

 private:
  void initialise() {
    constexpr double kStddev = 0.02;
    for (auto& parameter : named_parameters()) {
      if (parameter.key().ends_with("bias"))
        torch::nn::init::zeros_(parameter.value());
      else if (parameter.value().dim() == 2)
        torch::nn::init::normal_(parameter.value(), 0, kStddev);
    }
    const at::NoGradGuard no_grad;
    named_parameters()["bert.embeddings.word_embeddings.weight"][0].zero_();
  }

  std::shared_ptr<Body> bert_;
  Layer dropout_, classifier_;
};

std::vector<Option<BertOptions>> bert_options() {
  using O = BertOptions;
  return all_options(option("num_classes", &O::num_classes).at_least(1),
                     option("vocabulary", &O::vocabulary).at_least(1),
                     option("sequence_length", &O::sequence_length).at_least(1),
                     option("token_types", &O::token_types).at_least(1), option("width", &O::width).at_least(1),
                     option("depth", &O::depth).at_least(1), option("heads", &O::heads).at_least(1),
                     option("mlp_width", &O::mlp_width).at_least(0), option("dropout", &O::dropout).from_0_below_1(),
                     option("attention_dropout", &O::attention_dropout).from_0_below_1());
}

}  // namespace

std::shared_ptr<Classifier> bert(BertOptions options) {
  const auto described = bert_options();
  check(options, described, "bert: ", "");
  const std::int64_t width = options.width, heads = options.heads, mlp_width = options.mlp_width;
  if (width % heads != 0) throw ConfigError("bert: width must be a multiple of heads (", heads, "), got ", width);
  return std::make_shared<Classifier>(std::make_shared<Bert>(options, mlp_width == 0 ? 4 * width : mlp_width),
                                      ClassifierOptions{.num_classes = options.num_classes,
                                                        .input = "input_ids",
                                                        .hyperparameters = describe(options, described),
                                                        .ready = "bert"});
}

namespace entries {

Entry<ReadyModel> bert() { return ready_model("bert", "A classifier of texts", bert_options(), models::bert); }

}  // namespace entries

}  // namespace composer::models
