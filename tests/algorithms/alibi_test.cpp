#include "composer/algorithms/alibi.h"

#include <cmath>
#include <memory>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "composer/core/error.h"
#include "composer/models/bert.h"
#include "composer/models/gpt.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::test::alibi_test {
namespace {

using algorithms::Alibi;
using algorithms::alibi;
using algorithms::alibi_bias;
using algorithms::alibi_cut_sequences;

std::shared_ptr<models::Classifier> small_gpt(std::int64_t sequence_length = 8) {
  return models::gpt({.vocabulary = 11, .sequence_length = sequence_length, .width = 8, .depth = 2, .heads = 2});
}
std::shared_ptr<models::Classifier> small_bert() {
  return models::bert({.num_classes = 2,
                       .vocabulary = 11,
                       .sequence_length = 8,
                       .width = 8,
                       .depth = 1,
                       .heads = 2,
                       .dropout = 0,
                       .attention_dropout = 0});
}
at::Tensor tokens(std::int64_t samples, std::int64_t length) {
  return at::arange(samples * length, at::kLong).mul(7).remainder(10).add(1).view({samples, length});
}

TEST_CASE(
    "The bias falls with the distance, with the slope of each head; causal, it differs by a constant of each row") {
  const at::Tensor both = alibi_bias(2, 5, false), causal = alibi_bias(2, 5, true);
  CHECK(both.sizes() == at::IntArrayRef{1, 2, 5, 5});
  CHECK(both[0][0][1][4].item<float>() == doctest::Approx(-3.0 / 16));
  CHECK(both[0][1][4][1].item<float>() == doctest::Approx(-3.0 / 256));
  const at::Tensor row = both[0][0][3].slice(0, 0, 4) - causal[0][0].slice(0, 0, 4);
  CHECK(at::allclose(row, row[0].expand({4})));
}

TEST_CASE("alibi takes the learned positions out of a gpt, whose tokens then see distances and what came before only") {
  const auto model = small_gpt();
  CHECK(model->named_parameters().contains("module.wpe.weight"));
  CHECK(alibi(*model, {.max_sequence_length = 16}) == 1);
  CHECK_FALSE(model->named_parameters().contains("module.wpe.weight"));
  CHECK(alibi(*model, {.max_sequence_length = 16}) == 0);

  const at::NoGradGuard no_grad;
  const auto logits = [&](const at::Tensor& input) { return model->forward({{"input_ids", input}}).only(); };
  const at::Tensor input = tokens(2, 12);
  at::Tensor changed = input.clone();
  changed.slice(1, 9).fill_(1);
  CHECK(at::allclose(logits(input).slice(1, 0, 9), logits(changed).slice(1, 0, 9), 1e-5, 1e-6));
  CHECK_FALSE(at::allclose(logits(input).slice(1, 9), logits(changed).slice(1, 9), 1e-5, 1e-6));
  // Tokens alone do not tell their places, so equal tokens behind the same ones have equal logits.
  const at::Tensor repeated = at::full({1, 6}, 3, at::kLong);
  CHECK(at::allclose(logits(repeated)[0][0], logits(repeated)[0][5], 1e-4, 1e-5));
  CHECK_THROWS_AS(logits(tokens(1, 17)), DataError);
}

TEST_CASE("The attention of a gpt with alibi is the softmax of scores plus bias") {
  const auto model = small_gpt();
  alibi(*model, {.max_sequence_length = 8});
  model->to(at::kDouble);
  const auto parameters = model->named_parameters();
  const at::Tensor input = tokens(1, 6);
  // The same model by hand, one block after the other.
  const auto p = [&](const std::string& name) { return parameters["module." + name]; };
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return at::layer_norm(x, {8}, p(name + ".weight"), p(name + ".bias"));
  };
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    return at::linear(x, p(name + ".weight"), p(name + ".bias"));
  };
  at::Tensor x = at::embedding(p("wte.weight"), input);
  for (const std::string block : {"h.0.", "h.1."}) {
    const auto qkv =
        linear(norm(x, block + "ln_1"), block + "attn.c_attn").view({1, 6, 3, 2, 4}).permute({2, 0, 3, 1, 4});
    at::Tensor scores = at::matmul(qkv[0], qkv[1].transpose(2, 3)) / 2 + alibi_bias(2, 6, true).to(at::kDouble);
    scores = scores.masked_fill(at::ones({6, 6}, at::kBool).triu(1), -INFINITY);
    const at::Tensor attended = at::matmul(at::softmax(scores, -1), qkv[2]).transpose(1, 2).reshape({1, 6, 8});
    x = x + linear(attended, block + "attn.c_proj");
    x = x + linear(at::gelu(linear(norm(x, block + "ln_2"), block + "mlp.c_fc"), "tanh"), block + "mlp.c_proj");
  }
  const at::Tensor want = at::linear(norm(x, "ln_f"), p("wte.weight"));
  CHECK(at::allclose(model->forward({{"input_ids", input}}).only(), want, 1e-10, 1e-12));
}

TEST_CASE("A bert with alibi still ignores what its mask hides, and trains after an evaluation in inference mode") {
  const auto model = small_bert();
  CHECK(alibi(*model, {.max_sequence_length = 8}) == 1);
  const at::Tensor input = tokens(2, 6), kept = at::ones({2, 6}, at::kLong);
  kept.slice(1, 4).zero_();
  at::Tensor changed = input.clone();
  changed.slice(1, 4).fill_(2);
  const auto logits = [&](const at::Tensor& ids) {
    return model->forward({{"input_ids", ids}, {"attention_mask", kept}}).only();
  };
  {
    const c10::InferenceMode inference;
    CHECK(at::allclose(logits(input), logits(changed), 1e-5, 1e-6));
  }
  CHECK_NOTHROW(logits(input).sum().backward());
}

TEST_CASE("alibi_cut_sequences makes samples of the parts of sequences") {
  const Batch batch{{"input_ids", tokens(2, 8)}, {"target", tokens(2, 8) + 1}};
  const Batch cut = alibi_cut_sequences(batch, 0.25);
  CHECK(cut.at("input_ids").equal(tokens(2, 8).view({8, 2})));
  CHECK(cut.at("target").equal(cut.at("input_ids") + 1));
  // 49 * (1.0 / 49) is a little less than 1
  CHECK(alibi_cut_sequences({{"input_ids", tokens(2, 49)}}, 1.0 / 49).at("input_ids").sizes() ==
        at::IntArrayRef{98, 1});
  CHECK_THROWS_AS(alibi_cut_sequences(batch, 0.4), DataError);  // 3 tokens
  CHECK_THROWS_AS(alibi_cut_sequences(batch, 0.1), DataError);  // none
  CHECK_THROWS_WITH_AS(alibi_cut_sequences({{"input_ids", tokens(2, 8)}, {"target", at::zeros({2})}}, 0.25),
                       doctest::Contains("set train_sequence_length_scaling to 1"), ConfigError);
}

TrainerOptions gpt_options() {
  at::manual_seed(5);
  TrainerOptions with = tiny_options();
  with.model = small_gpt();
  with.train_dataloader = data::in_memory({{"input_ids", tokens(16, 8)}, {"target", tokens(16, 8).roll(1, 1)}},
                                          {.batch_size = 4, .shuffle = false});
  with.optimizer = optim::adamw({.lr = 0.01});
  with.max_duration = "2ep";
  with.seed = 7;
  return with;
}

TEST_CASE("A run with Alibi trains on parts of sequences and, cut off and resumed, ends with the same weights") {
  const auto options = [] {
    TrainerOptions with = gpt_options();
    with.algorithms = {Alibi({.max_sequence_length = 16})};
    return with;
  };
  std::vector<std::int64_t> shape;
  TrainerOptions with = options();
  with.callbacks.add(At([&](Event event, const State& state) {
    if (event == Event::AFTER_FORWARD) shape = state.outputs.only().sizes().vec();
  }));
  Trainer(std::move(with)).fit();
  CHECK(shape == std::vector<std::int64_t>{16, 2, 11});
  check_cut_and_resumed(options, 3);
}

TEST_CASE("Alibi warns of a model without positions, and leaves its batches alone") {
  const Warnings warnings;
  TrainerOptions with = tiny_options();
  with.algorithms = {Alibi({.max_sequence_length = 16})};
  CHECK_NOTHROW(Trainer(std::move(with)).fit());
  CHECK(warnings.say("Alibi: has no effect"));
}

TEST_CASE("Alibi refuses lengths and shares that are none") {
  CHECK_THROWS_WITH_AS(Alibi({}), "Alibi: max_sequence_length must be at least 1, got 0", ConfigError);
  CHECK_THROWS_WITH_AS(Alibi({.max_sequence_length = 8, .train_sequence_length_scaling = 1.5}),
                       "Alibi: train_sequence_length_scaling must be above 0 and at most 1, got 1.5", ConfigError);
  CHECK_THROWS_AS(Alibi({.max_sequence_length = 8, .input_key = ""}), ConfigError);
  CHECK_THROWS_AS(algorithms::alibi_head_slopes(0), ConfigError);
}

}  // namespace
}  // namespace composer::test::alibi_test
