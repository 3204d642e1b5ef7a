#include "composer/algorithms/gradient_clipping.h"

#include <cmath>

#include <ATen/Parallel.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/optim/named_optimizer.h"
#include "composer/optim/sgd.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny.h"

namespace composer::gradient_clipping_test {

using algorithms::apply_gradient_clipping;
using algorithms::ClippingType;
using algorithms::GradientClipping;
using test::FakeRun;

namespace {

at::Tensor with_gradient(at::Tensor values, at::Tensor gradient) {
  values.set_requires_grad(true);
  values.mutable_grad() = std::move(gradient);
  return values;
}

at::Tensor clipped(at::Tensor values, at::Tensor gradient, ClippingType type, double threshold) {
  const at::Tensor parameter = with_gradient(std::move(values), std::move(gradient));
  apply_gradient_clipping({parameter}, type, threshold);
  return parameter.grad();
}

at::Tensor numbers(std::vector<double> values) { return at::tensor(values, at::kDouble); }

struct Line : Model {
  Line() { register_module("line", line); }
  Outputs forward(const Batch& batch) override { return line->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch["target"]);
  }
  torch::nn::Linear line{4, 3};
};

}  // namespace

TEST_CASE("Clipping by norm scales all gradients by one factor") {
  const auto clip = [](double threshold) {
    const at::Tensor a = with_gradient(numbers({0, 0}), numbers({3, 0}));
    const at::Tensor b = with_gradient(numbers({0}), numbers({4}));
    const at::Tensor none = numbers({1}).requires_grad_();
    apply_gradient_clipping({a, none, b}, ClippingType::NORM, threshold);
    CHECK_FALSE(none.grad().defined());
    return at::cat({a.grad(), b.grad()});
  };
  CHECK(at::allclose(clip(1), numbers({3, 0, 4}) / (5 + 1e-6), 1e-12, 0));
  CHECK(at::equal(clip(6), numbers({3, 0, 4})));
  CHECK(at::allclose(clip(5), numbers({3, 0, 4}) * (5 / (5 + 1e-6)), 1e-12, 0));
}

TEST_CASE("Clipping by norm on the host agrees with clipping by operators") {
  // a gradient with gaps in memory is left to the operators
  for (const std::int64_t size : {1, 7, 64, 1000, 40000}) {
    CAPTURE(size);
    const at::Tensor gapless = at::randn({size, 3}, at::kDouble) + 2;
    const at::Tensor gaps = at::empty({size, 6}, at::kDouble).slice(1, 0, 6, 2).copy_(gapless);
    CHECK_FALSE(gaps.is_non_overlapping_and_dense());
    const at::Tensor by_host = clipped(at::zeros({size, 3}, at::kDouble), gapless, ClippingType::NORM, 0.5);
    const at::Tensor by_operators = clipped(at::zeros({size, 3}, at::kDouble), gaps, ClippingType::NORM, 0.5);
    CHECK(at::allclose(by_host, by_operators, 1e-12, 0));
    CHECK(by_host.norm().item<double>() == doctest::Approx(0.5).epsilon(1e-4));
  }
}

TEST_CASE("Clipping by norm on the host takes the norm in double precision, whatever the size and the threads") {
  const int threads = at::get_num_threads();
  for (const std::int64_t size : {1, 31, 33, 1000, 32768, 32769, 200003}) {
    CAPTURE(size);
    const at::Tensor gradient = at::sin(at::arange(size, at::kDouble)).to(at::kFloat);
    const double norm = gradient.to(at::kDouble).norm().item<double>();
    const auto factor = static_cast<float>(0.25 / (norm + 1e-6));
    for (const int n : {1, 2}) {
      at::set_num_threads(n);
      CHECK(at::equal(clipped(at::zeros({size}), gradient.clone(), ClippingType::NORM, 0.25),
                      gradient * at::scalar_tensor(factor)));
    }
    at::set_num_threads(threads);
  }
}

TEST_CASE("Autograd knows that a clipped gradient has changed") {
  const at::Tensor gradient = at::ones({4});
  const auto version = gradient._version();
  clipped(at::zeros({4}), gradient, ClippingType::NORM, 9);
  CHECK(gradient._version() == version);
  clipped(at::zeros({4}), gradient, ClippingType::NORM, 1);
  CHECK(gradient._version() == version + 1);
}

TEST_CASE("Clipping by norm makes zeros of what is beside an infinite gradient, as PyTorch does") {
  const at::Tensor gradient = clipped(numbers({0, 0}), numbers({INFINITY, 1}), ClippingType::NORM, 1);
  CHECK(gradient[0].isnan().item<bool>());
  CHECK(gradient[1].item<double>() == 0);
}

TEST_CASE("Clipping by norm lets NaN be seen in every gradient") {
  CHECK(clipped(numbers({0, 0}), numbers({NAN, 1}), ClippingType::NORM, 1).isnan().all().item<bool>());
}

TEST_CASE("Clipping by value cuts elements off") {
  const at::Tensor gradient = clipped(numbers({0, 0, 0}), numbers({-2, 0.5, 3}), ClippingType::VALUE, 1);
  CHECK(at::equal(gradient, numbers({-1, 0.5, 1})));
}

TEST_CASE("Adaptive clipping compares each unit's gradient with its weights") {
  struct Case {
    const char* why;
    at::Tensor weight, gradient;
    double threshold;
    at::Tensor expected;
  };
  const Case cases[] = {
      {"all elements of a vector are one unit", numbers({3, 4}), numbers({6, 8}), .1, numbers({.3, .4})},
      {"small enough", numbers({3, 4}), numbers({.06, .08}), .1, numbers({.06, .08})},
      {"a number", at::scalar_tensor(2., at::kDouble), at::scalar_tensor(8., at::kDouble), .5,
       at::scalar_tensor(1., at::kDouble)},
      {"rows are units; without gradient there is nothing", numbers({3, 4, 1, 0}).view({2, 2}),
       numbers({6, 8, 0, 0}).view({2, 2}), .1, numbers({.3, .4, 0, 0}).view({2, 2})},
      {"weights that are zero have the smallest norm", numbers({0, 0}), numbers({6, 8}), .1, numbers({.6e-4, .8e-4})},
      {"and so have weights with a smaller one", numbers({.3e-3, .4e-3, 3, 4}).view({2, 2}),
       numbers({6, 8, 6, 8}).view({2, 2}), .1, numbers({.6e-4, .8e-4, .3, .4}).view({2, 2})},
      {"neither weight nor gradient", numbers({0}), numbers({0}), .1, numbers({0})},
  };
  for (const auto& [why, weight, gradient, threshold, expected] : cases) {
    CAPTURE(why);
    CHECK(at::allclose(clipped(weight.clone(), gradient.clone(), ClippingType::ADAPTIVE, threshold), expected, 1e-12));
  }
}

TEST_CASE("Without a smallest norm of the weights, adaptive clipping leaves no gradient to weights that are zero") {
  const at::Tensor parameter = with_gradient(numbers({0, 0}), numbers({6, 8}));
  apply_gradient_clipping({parameter}, ClippingType::ADAPTIVE, .1, /*min_weight_norm=*/0);
  CHECK(at::equal(parameter.grad(), numbers({0, 0})));
}

TEST_CASE("With adaptive clipping, every parameter of a model whose head begins at zero is trained") {
  const auto model = std::make_shared<Line>();
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.zero_();
  }
  composer::TrainerOptions options = composer::test::tiny_options();
  options.model = model;
  options.train_dataloader = composer::test::tiny_loader(64, 4);
  options.optimizer = composer::optim::sgd({.lr = 1});
  options.max_duration = "8ba";
  options.algorithms = {GradientClipping({.clipping_type = ClippingType::ADAPTIVE, .clipping_threshold = 0.01})};
  composer::Trainer trainer(std::move(options));
  trainer.fit();
  for (const at::Tensor& parameter : model->parameters()) CHECK(parameter.norm().item<double>() > 0);
}

TEST_CASE("GradientClipping clips the model's gradients after the batch") {
  GradientClipping clipping({.clipping_type = ClippingType::VALUE, .clipping_threshold = 0.25});
  FakeRun run;
  const auto model = composer::test::tiny_model();
  run.state.model = Handle<Model>(model);
  clipping.apply(Event::INIT, run.state, run.logger);
  for (at::Tensor& parameter : model->parameters()) parameter.mutable_grad() = at::ones_like(parameter);
  clipping.apply(Event::AFTER_TRAIN_BATCH, run.state, run.logger);
  for (const at::Tensor& parameter : model->parameters())
    CHECK(at::equal(parameter.grad(), at::full_like(parameter, 0.25)));
}

TEST_CASE("GradientClipping clips parameters that have replaced others, between two fits and between two steps") {
  for (const bool within : {false, true}) {
    CAPTURE(within);
    const auto model = std::make_shared<Line>();
    composer::TrainerOptions options = composer::test::tiny_options();
    options.model = model;
    options.train_dataloader = composer::test::tiny_loader(64, 4);
    options.optimizer = composer::optim::sgd({.lr = 1});
    options.max_duration = "8ba";
    options.algorithms = {GradientClipping({.clipping_threshold = 1e-4})};
    composer::Trainer trainer(std::move(options));
    trainer.begin();
    trainer.step();
    trainer.step();
    if (!within) trainer.end();
    auto& optimizer = dynamic_cast<composer::optim::NamedOptimizer&>(*trainer.state().optimizer);
    const torch::nn::Linear now(4, 3);
    optimizer.replace_parameter(model->line->weight, now->weight);
    optimizer.replace_parameter(model->line->bias, now->bias);
    model->replace_module("line", now);
    model->line = now;
    const at::Tensor before = composer::test::weights_of(trainer);
    if (!within) trainer.begin();
    trainer.step();
    const double moved = (composer::test::weights_of(trainer) - before).norm().item<double>();
    CHECK(moved > 0);
    CHECK(moved < 1.1e-4);
  }
}

TEST_CASE("A parameter that is registered twice, or given twice, is clipped once") {
  struct Tied final : Model {
    torch::nn::Linear layer{2, 2};
    Tied() {
      register_module("encoder", layer);
      register_module("decoder", layer);
    }
    Outputs forward(const Batch& batch) override { return layer->forward(batch["input"]); }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().sum(); }
  };
  for (const ClippingType type : {ClippingType::NORM, ClippingType::VALUE, ClippingType::ADAPTIVE}) {
    GradientClipping clipping({.clipping_type = type, .clipping_threshold = 0.5});
    FakeRun run;
    const auto model = std::make_shared<Tied>();
    run.state.model = Handle<Model>(model);
    clipping.apply(Event::INIT, run.state, run.logger);
    const at::Tensor weight = model->layer->weight, bias = model->layer->bias;
    const at::Tensor once = with_gradient(weight.detach().clone(), at::full({2, 2}, 3.F));
    const at::Tensor once_bias = with_gradient(bias.detach().clone(), at::full({2}, 3.F));
    weight.mutable_grad() = at::full({2, 2}, 3.F);
    bias.mutable_grad() = at::full({2}, 3.F);
    clipping.apply(Event::AFTER_TRAIN_BATCH, run.state, run.logger);
    apply_gradient_clipping({once, once_bias}, type, 0.5);
    CHECK(at::equal(weight.grad(), once.grad()));
    CHECK(at::equal(bias.grad(), once_bias.grad()));
  }
  const at::Tensor twice = with_gradient(numbers({0, 0}), numbers({3, 4}));
  apply_gradient_clipping({twice, twice}, ClippingType::NORM, 1);
  CHECK(at::allclose(twice.grad(), numbers({.6, .8}), 1e-6));
}

TEST_CASE("Clipping by value or adaptively refuses a sparse gradient by the parameter's name; by norm it is clipped") {
  struct Words final : Model {
    torch::nn::Embedding words{torch::nn::EmbeddingOptions(5, 2).sparse(true)};
    Words() { register_module("words", words); }
    Outputs forward(const Batch& batch) override { return words->forward(batch["input"]); }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().sum(); }
  };
  const auto model = std::make_shared<Words>();
  FakeRun run;
  run.state.model = Handle<Model>(model);
  const auto backward = [&] {
    model->zero_grad();
    const Batch batch = at::tensor({1, 1, 3}, at::kLong);
    model->loss(model->forward(batch), batch).only().backward();
    REQUIRE(model->words->weight.grad().is_sparse());
  };
  for (const ClippingType type : {ClippingType::VALUE, ClippingType::ADAPTIVE}) {
    GradientClipping clipping({.clipping_type = type, .clipping_threshold = 0.5});
    clipping.apply(Event::INIT, run.state, run.logger);
    backward();
    CHECK_THROWS_WITH_AS(clipping.apply(Event::AFTER_TRAIN_BATCH, run.state, run.logger),
                         doctest::Contains("sparse gradient of words.weight"), ConfigError);
  }
  GradientClipping clipping({.clipping_threshold = 0.5});
  clipping.apply(Event::INIT, run.state, run.logger);
  backward();
  clipping.apply(Event::AFTER_TRAIN_BATCH, run.state, run.logger);
  CHECK(model->words->weight.grad().to_dense().norm().item<double>() == doctest::Approx(0.5).epsilon(1e-5));
}

TEST_CASE("Adaptive clipping leaves a unit alone whose gradient has a NaN") {
  const at::Tensor gradient =
      clipped(numbers({1, 1, 1, 1}).view({2, 2}), numbers({9, NAN, 9, 9}).view({2, 2}), ClippingType::ADAPTIVE, 0.1);
  CHECK(gradient[0][0].item<double>() == 9);
  CHECK(gradient[0][1].isnan().item<bool>());
  CHECK(gradient[1].norm().item<double>() == doctest::Approx(0.1 * std::sqrt(2)));
}

TEST_CASE("GradientClipping refuses a smallest norm below 0") {
  for (const double norm : {-1., double{NAN}}) {
    CAPTURE(norm);
    CHECK_THROWS_WITH_AS(GradientClipping({.clipping_threshold = 1, .min_weight_norm = norm}),
                         doctest::Contains("min_weight_norm must be >= 0, got"), ConfigError);
  }
}

TEST_CASE("GradientClipping refuses a threshold that is not positive") {
  for (const double threshold : {0., -1., double{NAN}}) {
    CAPTURE(threshold);
    CHECK_THROWS_AS(GradientClipping({.clipping_threshold = threshold}), ConfigError);
  }
}

}  // namespace composer::gradient_clipping_test
