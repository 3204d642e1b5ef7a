#include "composer/models/gpt.h"

#include <cmath>
#include <set>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/models/generate.h"
#include "composer/optim/adam.h"
#include "composer/optim/parameter_group.h"
#include "tests/models/support.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::gpt_test {
namespace {

using test::parameter_count;

constexpr models::GptOptions kTiny{.vocabulary = 11, .sequence_length = 8, .width = 16, .depth = 2, .heads = 2};

// By the formula, for options whose head is tied.
std::int64_t expected_count(const models::GptOptions& o) {
  const std::int64_t block = 12 * o.width * o.width + 13 * o.width;
  return (o.vocabulary + o.sequence_length) * o.width + o.depth * block + 2 * o.width;
}

Batch tokens(std::int64_t samples, std::int64_t length, std::int64_t vocabulary) {
  const at::Tensor text = at::randint(vocabulary, {samples, length + 1}, at::kLong);
  return {{"input_ids", text.narrow(1, 0, length)}, {"target", text.narrow(1, 1, length)}};
}

double loss_of(Model& model, const Batch& batch) {
  return model.loss(model.forward(batch), batch)["total"].item<double>();
}

}  // namespace

TEST_CASE("A GPT has the parameters of its options, and one matrix more if its head is not tied") {
  CHECK(parameter_count(*models::gpt(kTiny)) == expected_count(kTiny));
  models::GptOptions untied = kTiny;
  untied.tied = false;
  CHECK(parameter_count(*models::gpt(untied)) == expected_count(kTiny) + 11 * 16);
  CHECK(expected_count({}) == 124439808);  // the smallest GPT-2
}

TEST_CASE("A GPT's parameters are named and shaped as GPT-2's") {
  models::GptOptions untied = kTiny;
  untied.tied = false;
  const auto tied = models::gpt(kTiny), model = models::gpt(untied);
  std::set<std::string> keys;
  for (const auto& parameter : model->named_parameters()) keys.insert(parameter.key());
  for (const char* name :
       {"module.wte.weight", "module.wpe.weight", "module.h.0.ln_1.weight", "module.h.0.attn.c_attn.bias",
        "module.h.1.attn.c_proj.weight", "module.h.1.ln_2.bias", "module.h.0.mlp.c_fc.weight",
        "module.h.1.mlp.c_proj.bias", "module.ln_f.bias", "module.lm_head.weight"})
    CHECK_MESSAGE(keys.count(name) == 1, name);
  CHECK(keys.size() == 2 * 12 + 5);
  CHECK(tied->named_parameters().size() == 2 * 12 + 4);
  CHECK((model->named_parameters()["module.h.0.attn.c_attn.weight"].sizes() == at::IntArrayRef({48, 16})));
}

TEST_CASE("A fresh GPT finds all tokens about equally likely") {
  at::manual_seed(3);
  for (const bool tied : {true, false}) {
    const auto model =
        models::gpt({.vocabulary = 96, .sequence_length = 32, .width = 64, .depth = 2, .heads = 4, .tied = tied});
    const Batch batch = tokens(4, 32, 96);
    CHECK((model->forward(batch).only().sizes() == at::IntArrayRef({4, 32, 96})));
    CHECK(loss_of(*model, batch) == doctest::Approx(std::log(96.0)).epsilon(0.03));
  }
}

TEST_CASE("A GPT does not see the tokens that come later") {
  const auto model = models::gpt(kTiny);
  const at::Tensor input = at::randint(11, {2, 8}, at::kLong);
  at::Tensor changed = input.clone();
  changed.select(1, 5).add_(1).remainder_(11);
  const at::Tensor before = model->forward({{"input_ids", input}}).only();
  const at::Tensor after = model->forward({{"input_ids", changed}}).only();
  CHECK(at::allclose(before.narrow(1, 0, 5), after.narrow(1, 0, 5), 1e-5, 1e-6));
  CHECK_FALSE(at::allclose(before.select(1, 5), after.select(1, 5), 1e-5, 1e-6));
}

TEST_CASE("A GPT learns a few sequences by heart") {
  at::manual_seed(4);
  const auto model = models::gpt(kTiny);
  optim::NamedParameters parameters = optim::parameters_of(*model);
  optim::AdamW optimizer(parameters, {.lr = 1e-2});
  const Batch batch = tokens(3, 8, 11);
  model->train();
  for (int i = 0; i < 150; ++i) {
    optimizer.zero_grad();
    model->loss(model->forward(batch), batch)["total"].backward();
    if (i == 0)
      for (const auto& parameter : model->named_parameters()) {
        INFO(parameter.key());
        CHECK(parameter.value().grad().abs().sum().item<double>() > 0);
      }
    optimizer.step();
  }
  CHECK(loss_of(*model, batch) < 0.2);
}

TEST_CASE("A GPT's loss leaves out targets of -100, and its metrics are those of language") {
  const auto model = models::gpt(kTiny);
  Batch batch = tokens(2, 6, 11);
  const Outputs outputs = model->forward(batch);
  at::Tensor target = batch["target"].clone();
  target.select(0, 0).fill_(-100);
  const Batch masked{{"input_ids", batch["input_ids"]}, {"target", target}};
  const double expected =
      at::cross_entropy_loss(outputs.only().select(0, 1), batch["target"].select(0, 1)).item<double>();
  CHECK(model->loss(outputs, masked)["total"].item<double>() == doctest::Approx(expected));
  const Metrics metrics = model->get_metrics(false);
  for (const auto& metric : metrics) model->update_metric(masked, outputs, *metric);
  REQUIRE(metrics.size() == 2);
  CHECK((*metrics.begin())->compute().item<double>() == doctest::Approx(expected));
  CHECK((*std::next(metrics.begin()))->compute().item<double>() == doctest::Approx(std::exp(expected)));
}

TEST_CASE("A run that is limited in tokens ends with a GPT") {
  TrainerOptions options{.model = models::gpt(kTiny)};
  options.train_dataloader = data::in_memory(tokens(8, 8, 11), {.batch_size = 4});
  options.optimizer = optim::adamw({.lr = 1e-3});
  options.max_duration = "100tok";
  options.device = at::Device(at::kCPU);
  options.handle_signals = false;
  options.callbacks = {std::make_shared<test::At>([](Event, const State& state) {
    if (state.timestamp.batch > 4) state.stop.ask("tokens are not counted");
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 4);
  CHECK(trainer.state().timestamp.token == 4 * 4 * 8);
}

TEST_CASE("Label smoothing changes a GPT's loss as libtorch has it, and its metrics not at all") {
  models::GptOptions options = kTiny;
  options.label_smoothing = 0.2;
  const auto model = models::gpt(options);
  Batch batch = tokens(2, 6, 11);
  batch.set("target", batch["target"].clone());  // it shares memory with the input
  batch["target"].select(0, 0).fill_(-100);
  const Outputs outputs = model->forward(batch);
  const auto entropy = [&](double smoothing) {
    return at::cross_entropy_loss(outputs.only().view({12, 11}), batch["target"].reshape(12), {}, at::Reduction::Mean,
                                  -100, smoothing)
        .item<double>();
  };
  CHECK(model->loss(outputs, batch)["total"].item<double>() == doctest::Approx(entropy(0.2)));
  const auto metric = *model->get_metrics(true).begin();
  model->update_metric(batch, outputs, *metric);
  CHECK(metric->compute().item<double>() == doctest::Approx(entropy(0)));
  options.label_smoothing = 1.5;
  CHECK_THROWS_WITH_AS(models::gpt(options), "gpt: label_smoothing must be from 0 to 1, got 1.5", ConfigError);
}

TEST_CASE("A GPT that cannot be, and text that is too long, are refused") {
  CHECK_THROWS_WITH_AS(models::gpt({.vocabulary = 0}), "gpt: vocabulary must be >= 1, got 0", ConfigError);
  CHECK_THROWS_WITH_AS(models::gpt({.depth = -1}), "gpt: depth must be >= 1, got -1", ConfigError);
  CHECK_THROWS_WITH_AS(models::gpt({.width = 10, .heads = 4}), "gpt: width must be a multiple of heads (4), got 10",
                       ConfigError);
  CHECK_THROWS_WITH_AS(models::gpt(kTiny)->forward(tokens(1, 9, 11)), doctest::Contains("T <= 8"), DataError);
}

TEST_CASE("A token that a GPT does not have is an error that names it, its place and the vocabulary") {
  const auto model = models::gpt(kTiny);
  for (const std::int64_t wrong : {kTiny.vocabulary, std::int64_t{-1}}) {
    Batch batch = tokens(2, 8, kTiny.vocabulary);
    batch["input_ids"][1][3] = wrong;
    CHECK_THROWS_WITH_AS(
        model->forward(batch),
        join("gpt: token ", wrong, " of sample 1, at position 3, is out of range; the tokens of its vocabulary are ",
             kTiny.vocabulary, ", 0 to ", kTiny.vocabulary - 1)
            .c_str(),
        DataError);
  }
  for (const bool cache : {true, false})
    CHECK_THROWS_WITH_AS(
        models::generate(*model, {{1, 2}, {3, kTiny.vocabulary}}, {.max_new_tokens = 2, .cache = cache}),
        doctest::Contains("gpt: token 11 of sample 1, at position 1, is out of range"), DataError);
}

}  // namespace composer::gpt_test
