#include "composer/algorithms/low_precision_layernorm.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "composer/algorithms/low_precision_groupnorm.h"
#include "tests/support/bf16_autocast.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::test::low_precision_layernorm_test {
namespace {

namespace nn = torch::nn;
using algorithms::low_precision_groupnorm;
using algorithms::low_precision_layernorm;
using algorithms::LowPrecisionGroupNorm;
using algorithms::LowPrecisionLayerNorm;

template <class Algorithm>
TrainerOptions run_of(const nn::Sequential& body, Precision precision) {
  TrainerOptions with = tiny_options();
  with.model = std::make_shared<models::Classifier>(body, models::ClassifierOptions{.num_classes = 3});
  with.max_duration = "2ep";
  with.precision = precision;
  with.algorithms = {Algorithm()};
  return with;
}

TEST_CASE("A layer norm computes in the type of autocast where that is on, and as before elsewhere") {
  nn::Sequential model{nn::LayerNorm(nn::LayerNormOptions({6}))};
  const at::Tensor weight = model->named_parameters()["0.weight"], x = at::randn({4, 6});
  const at::Tensor before = model->forward(x);
  CHECK(low_precision_layernorm(*model, Precision::FP32).made.empty());
  REQUIRE(low_precision_layernorm(*model, Precision::AMP_BF16).made.size() == 1);
  CHECK(model->named_parameters()["0.weight"].is_same(weight));
  CHECK(model->forward(x).equal(before));
  const Bf16Autocast autocast;
  const at::Tensor low = model->forward(x);
  CHECK((low.scalar_type() == at::kBFloat16));
  CHECK(at::allclose(low.to(at::kFloat), before, 0.02, 0.02));
  low.sum().backward();
  CHECK((weight.grad().scalar_type() == at::kFloat));
  CHECK(low_precision_layernorm(*model, Precision::AMP_BF16).made.empty());
}

TEST_CASE("A group norm computes in the type of autocast where that is on, and as before elsewhere") {
  nn::Sequential model{nn::GroupNorm(nn::GroupNormOptions(2, 6).affine(false))};
  const at::Tensor x = at::randn({4, 6, 3});
  const at::Tensor before = model->forward(x);
  CHECK(low_precision_groupnorm(*model, Precision::FP32).made.empty());
  REQUIRE(low_precision_groupnorm(*model, Precision::AMP_BF16).made.size() == 1);
  CHECK(model->forward(x).equal(before));
  const Bf16Autocast autocast;
  const at::Tensor low = model->forward(x);
  CHECK((low.scalar_type() == at::kBFloat16));
  CHECK(at::allclose(low.to(at::kFloat), before, 0.02, 0.02));
}

TEST_CASE("Runs with norms in low precision that are cut off and resumed end with the weights of those that are not") {
  check_cut_and_resumed(
      [] {
        at::manual_seed(5);
        return run_of<LowPrecisionLayerNorm>(
            nn::Sequential(nn::Linear(4, 6), nn::LayerNorm(nn::LayerNormOptions({6})), nn::Linear(6, 3)),
            Precision::AMP_BF16);
      },
      3);
  check_cut_and_resumed(
      [] {
        at::manual_seed(5);
        return run_of<LowPrecisionGroupNorm>(nn::Sequential(nn::Linear(4, 6), nn::GroupNorm(2, 6), nn::Linear(6, 3)),
                                             Precision::AMP_BF16);
      },
      3);
}

TEST_CASE("Norms in low precision warn in fp32, and leave the model alone") {
  const Warnings warnings;
  const nn::Sequential body(nn::Linear(4, 3), nn::LayerNorm(nn::LayerNormOptions({3})));
  Trainer trainer(run_of<LowPrecisionLayerNorm>(body, Precision::FP32));
  CHECK(
      warnings.say("LowPrecisionLayerNorm: no module was replaced: there is no layer norm, or the precision is fp32"));
  CHECK(body->ptr(1)->as<nn::LayerNorm>());
}

}  // namespace
}  // namespace composer::test::low_precision_layernorm_test
