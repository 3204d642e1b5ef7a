#include "composer/algorithms/channels_last.h"

#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::test::channels_last_test {
namespace {

namespace nn = torch::nn;
using algorithms::channels_last;
using algorithms::ChannelsLast;

TEST_CASE("channels_last changes the layout of 4-dimensional weights alone, and neither values nor tensors") {
  nn::Sequential model{nn::Conv2d(3, 4, 3), nn::Flatten(), nn::Linear(4, 2)};
  const auto parameters = model->named_parameters();
  const at::Tensor weight = parameters["0.weight"], before = weight.detach().clone();
  CHECK(channels_last(*model) == 1);
  CHECK(model->named_parameters()["0.weight"].is_same(weight));
  CHECK(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  CHECK(weight.equal(before));
  CHECK(weight.requires_grad());
  CHECK(parameters["2.weight"].is_contiguous());
}

TEST_CASE("A run with ChannelsLast that is cut off and resumed ends with the weights of one that is not") {
  const auto options = [] {
    at::manual_seed(5);
    const nn::Sequential body(nn::Unflatten(1, std::vector<std::int64_t>{1, 2, 2}), nn::Conv2d(1, 4, 2), nn::Flatten(),
                              nn::Linear(4, 3));
    TrainerOptions with = tiny_options();
    with.model = std::make_shared<models::Classifier>(body, models::ClassifierOptions{.num_classes = 3});
    with.optimizer = optim::adamw({.lr = 0.05});
    with.max_duration = "2ep";
    with.seed = 7;
    with.algorithms = {ChannelsLast()};
    return with;
  };
  check_cut_and_resumed(options, 3);
}

TEST_CASE("ChannelsLast warns of a model without convolutions") {
  const Warnings warnings;
  TrainerOptions with = tiny_options();
  with.algorithms = {ChannelsLast()};
  Trainer trainer(std::move(with));
  CHECK(warnings.say("ChannelsLast: has no effect"));
}

}  // namespace
}  // namespace composer::test::channels_last_test
