#include "composer/algorithms/blurpool.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "composer/core/error.h"
#include "composer/models/classifier.h"
#include "composer/models/resnet.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::test::blurpool_test {
namespace {

namespace nn = torch::nn;
using algorithms::blur_2d;
using algorithms::BlurPool;
using algorithms::blurpool;

using Names = std::vector<std::string>;

Names names_of(const Replacements& done) {
  Names names;
  for (const Replacement& one : done.made) names.push_back(one.name);
  return names;
}

Names keys_of(const nn::Module& model) {
  Names names;
  for (const auto& one : model.named_parameters()) names.push_back(one.key());
  for (const auto& one : model.named_buffers()) names.push_back(one.key());
  return names;
}

nn::Sequential net() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1)), nn::MaxPool2d(2),
                        nn::Conv2d(nn::Conv2dOptions(16, 4, 3).stride({2, 1}).padding(1).bias(false)));
}

TEST_CASE("blur_2d weighs the neighbours of a pixel by 1, 2, 1 in both directions") {
  const at::Tensor x = at::arange(16, at::kFloat).view({1, 1, 4, 4});
  CHECK(at::equal(blur_2d(x).flatten().slice(0, 0, 6), at::tensor({.9375F, 1.75F, 2.5F, 2.25F, 3.25F, 5.F})));
  nn::Sequential pool{nn::MaxPool2d(2)};
  blurpool(*pool);
  CHECK(at::equal(pool->forward(x).flatten(), at::tensor({3.75F, 4.5F, 6.75F, 7.5F})));
}

TEST_CASE("blur_2d takes one stride, or one for rows and one for columns") {
  const at::Tensor x = at::randn({2, 3, 7, 6}), all = blur_2d(x);
  CHECK(at::allclose(blur_2d(x, 2), all.slice(2, 0, {}, 2).slice(3, 0, {}, 2)));
  CHECK(at::allclose(blur_2d(x, {2, 1}), all.slice(2, 0, {}, 2)));
  CHECK(at::allclose(blur_2d(x, {1, 3}), all.slice(3, 0, {}, 3)));
}

TEST_CASE("blurpool replaces strided convolutions and max-pools, and keeps weights and their names' ends") {
  nn::Sequential model = net();
  const at::Tensor weight = model->named_parameters()["2.weight"];
  CHECK((names_of(blurpool(*model)) == Names{"1", "2"}));
  CHECK((keys_of(*model) == Names{"0.weight", "0.bias", "2.conv.weight", "1.filt2d", "2.blur_filter"}));
  CHECK(model->named_parameters()["2.conv.weight"].is_same(weight));
  CHECK(blurpool(*model).made.empty());
}

TEST_CASE("blurpool blurs what a convolution gets, or what it gives at stride 1") {
  const at::Tensor x = at::randn({2, 16, 6, 6});
  for (const bool first : {true, false}) {
    CAPTURE(first);
    nn::Sequential model{nn::Conv2d(nn::Conv2dOptions(16, 16, 3).stride(2).padding(1))};
    const at::Tensor weight = model->parameters()[0], bias = model->parameters()[1];
    const at::Tensor expected =
        first ? at::conv2d(blur_2d(x), weight, bias, 2, 1) : blur_2d(at::conv2d(x, weight, bias, 1, 1), 2);
    blurpool(*model, {.blur_first = first});
    CHECK(at::equal(model->forward(x), expected));
    model->forward(x).sum().backward();
    CHECK(weight.grad().defined());
  }
}

TEST_CASE("blurpool leaves alone what its options leave out") {
  CHECK((names_of(blurpool(*net(), {.replace_convs = false})) == Names{"1"}));
  CHECK((names_of(blurpool(*net(), {.replace_maxpools = false})) == Names{"2"}));
  CHECK((names_of(blurpool(*net(), {.min_channels = 17})) == Names{"1"}));
}

TEST_CASE("blurpool gives a model in double precision filters in double precision") {
  nn::Sequential model = net();
  model->to(at::kDouble);
  blurpool(*model);
  CHECK((model->forward(at::randn({1, 3, 8, 8}, at::kDouble)).scalar_type() == at::kDouble));
}

TEST_CASE("blurpool replaces the strided layers of the library's residual net, which calls them") {
  const auto model = models::resnet({.num_classes = 3});
  const Replacements done = blurpool(*model);
  CHECK(done.made.size() == 1 + 3 + 3);  // the pool; of three stages a convolution and a shortcut
  CHECK(done.out_of_reach.empty());
  model->forward({{"input", at::randn({2, 3, 32, 32})}});
  CHECK(done.never_called().empty());
}

TEST_CASE("A run with BlurPool that is cut off and resumed ends with the weights of one that is not") {
  const auto options = [] {
    at::manual_seed(5);
    const nn::Sequential body(nn::Unflatten(nn::UnflattenOptions(1, {1, 2, 2})),
                              nn::Conv2d(nn::Conv2dOptions(1, 4, 2).stride({2, 1}).padding(1)), nn::MaxPool2d(2),
                              nn::Flatten(), nn::Linear(4, 3));
    TrainerOptions with = tiny_options();
    with.model = std::make_shared<models::Classifier>(body, models::ClassifierOptions{.num_classes = 3});
    with.optimizer = optim::adamw({.lr = 0.05});
    with.max_duration = "2ep";
    with.seed = 7;
    with.algorithms = {BlurPool({.min_channels = 1})};
    return with;
  };
  check_cut_and_resumed(options, 3);
}

TEST_CASE("BlurPool refuses options that make no sense") {
  CHECK_THROWS_WITH_AS(BlurPool({.replace_convs = false, .replace_maxpools = false}),
                       "BlurPool: replace_convs and replace_maxpools are both false; nothing would be replaced",
                       ConfigError);
  CHECK_THROWS_WITH_AS(BlurPool({.min_channels = 0}), "BlurPool: min_channels must be at least 1, got 0", ConfigError);
}

}  // namespace
}  // namespace composer::test::blurpool_test
