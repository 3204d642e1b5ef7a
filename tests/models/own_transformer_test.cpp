// A transformer whose blocks take part in the algorithms that docs/reference/models.md lists.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "composer/algorithms/alibi.h"
#include "composer/algorithms/gated_linear_units.h"
#include "composer/algorithms/seq_length_warmup.h"
#include "composer/algorithms/stochastic_depth.h"
#include "composer/models/language_model.h"
#include "composer/surgery/feed_forward.h"
#include "composer/surgery/layer.h"
#include "composer/surgery/position_bias.h"
#include "composer/surgery/residual_block.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::own_transformer_test {
namespace {

namespace nn = torch::nn;

// Causal attention. The bias is that of the model, empty at first.
class Attention : public nn::Module {
 public:
  Attention(std::int64_t width, std::int64_t heads, std::shared_ptr<const PositionBias> bias)
      : heads_(heads),
        bias_(std::move(bias)),
        in_(this, "in", nn::Linear(width, 3 * width)),
        out_(this, "out", nn::Linear(width, width)) {}

  at::Tensor forward(const at::Tensor& x) {
    const std::int64_t samples = x.size(0), tokens = x.size(1), width = x.size(2);
    const at::Tensor all = in_(x).view({samples, tokens, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
    std::optional<at::Tensor> bias;
    if (*bias_) bias = (*bias_)(tokens, all);  // it masks the later tokens as well
    const at::Tensor y =
        at::scaled_dot_product_attention(all[0], all[1], all[2], bias, /*dropout_p=*/0, /*is_causal=*/!bias);
    return out_(y.transpose(1, 2).reshape(x.sizes()));
  }

 private:
  std::int64_t heads_;
  std::shared_ptr<const PositionBias> bias_;
  Layer in_, out_;
};

// GatedLinearUnits puts what with_gate() returns into its place.
class Wide : public FeedForward {
 public:
  explicit Wide(std::int64_t width)
      : FeedForward("up", width, 4 * width, [](const at::Tensor& x) { return at::gelu(x); }),
        down_(this, "down", nn::Linear(4 * width, width)) {}
  at::Tensor forward(const at::Tensor& x) { return down_(wide(x)); }  // wide(): activation(up(x)), and the gate
  Layer with_gate(const Gate& gate) const override { return gated(*this, gate); }

 private:
  Layer down_;
};

// x + inner(norm(x)). StochasticDepth drops the branch; forward() is that of ResidualBlock.
class Block : public ResidualBlock {
 public:
  template <class Inner>
  Block(std::int64_t width, std::shared_ptr<Inner> inner)
      : norm_(this, "norm", nn::LayerNorm(nn::LayerNormOptions({width}))), inner_(this, "inner", std::move(inner)) {}

 protected:
  at::Tensor branch(const at::Tensor& x) override { return inner_(norm_(x)); }

 private:
  Layer norm_, inner_;
};

// Tokens [N, T] to logits [N, T, vocabulary]. Alibi replaces the positions.
class Transformer : public nn::Module, public LearnsPositions {
 public:
  Transformer(std::int64_t vocabulary, std::int64_t longest, std::int64_t width, std::int64_t heads)
      : heads_(heads), words_(vocabulary, width), positions_(longest, width) {
    register_module("words", words_);
    register_module("positions", positions_);
    for (const std::string layer : {"0", "1"}) {
      blocks_.emplace_back(this, "attention" + layer,
                           std::make_shared<Block>(width, std::make_shared<Attention>(width, heads, bias_)));
      blocks_.emplace_back(this, "wide" + layer, std::make_shared<Block>(width, std::make_shared<Wide>(width)));
    }
    head_ = Layer(this, "head", nn::Linear(width, vocabulary));
  }

  at::Tensor forward(const at::Tensor& tokens) {  // of any T: SeqLengthWarmup shortens them
    at::Tensor x = words_->forward(tokens);
    if (!*bias_) x = x + positions_->weight.slice(0, 0, tokens.size(1));
    for (const Layer& block : blocks_) x = block(x);
    return head_(x);
  }

  std::int64_t attention_heads() const override { return heads_; }
  bool is_causal() const override { return true; }
  bool set_position_bias(PositionBias bias, std::int64_t) override {
    if (*bias_) return false;
    *bias_ = std::move(bias);
    unregister_module("positions");  // the optimizer is made without its weight
    return true;
  }

 private:
  std::int64_t heads_;
  std::shared_ptr<PositionBias> bias_ = std::make_shared<PositionBias>();
  nn::Embedding words_, positions_;
  std::vector<Layer> blocks_;
  Layer head_;
};

TEST_CASE("Algorithms change a transformer of one's own through its blocks") {
  const at::Tensor tokens = at::arange(16 * 17, at::kLong).remainder(11).view({16, 17});
  const Batch texts = {{"input_ids", tokens.slice(1, 0, 16)}, {"target", tokens.slice(1, 1)}};
  at::manual_seed(3);
  const auto body = std::make_shared<Transformer>(11, 16, 32, 4);
  const std::size_t before = body->parameters().size();
  const auto log = std::make_shared<RecordingLogger>();
  const Warnings warnings;
  std::vector<std::int64_t> lengths;
  TrainerOptions with = tiny_options();
  with.model = std::make_shared<models::LanguageModel>(body);
  with.train_dataloader = data::in_memory(texts, {.batch_size = 4, .shuffle = false});
  with.max_duration = "16ba";
  with.algorithms = {
      algorithms::GatedLinearUnits(), algorithms::StochasticDepth({.drop_rate = 0.3}),
      algorithms::Alibi({.max_sequence_length = 64, .train_sequence_length_scaling = 1}),
      algorithms::SeqLengthWarmup({.duration = 0.5, .min_seq_length = 4, .max_seq_length = 16, .step_size = 4})};
  with.loggers = {log};
  with.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::BEFORE_FORWARD) lengths.push_back(state.batch.at("input_ids").size(1));
  })};
  Trainer trainer(std::move(with));
  CHECK(warnings.texts.empty());
  CHECK(log->values.at("stochastic_depth/num_stochastic_layers") == std::vector<double>{4});
  CHECK(body->parameters().size() == before - 1 - 2 + 2);  // no positions; the gated layers' biases; two gates
  CHECK(body->named_parameters().contains("wide0.inner.gated_layer.weight"));
  CHECK_FALSE(body->named_parameters().contains("positions.weight"));
  trainer.fit();
  CHECK(lengths.front() == 4);
  CHECK(lengths.back() == 16);
  CHECK(at::isfinite(weights_of(trainer)).all().item<bool>());
  const at::NoGradGuard no_grad;
  CHECK(body->forward(at::zeros({1, 64}, at::kLong)).size(1) == 64);  // more than the learned positions allowed
}

}  // namespace
}  // namespace composer::test::own_transformer_test
