#include "composer/models/resnet.h"

#include <set>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/optim/parameter_group.h"
#include "composer/optim/sgd.h"
#include "tests/models/support.h"
#include "tests/support/doctest.h"

namespace composer::resnet_test {
namespace {

using test::parameter_count;

}  // namespace

TEST_CASE("ResNets have as many parameters as torchvision's") {
  CHECK(parameter_count(*models::resnet()) == 11689512);
  CHECK(parameter_count(*models::resnet({.depth = 34})) == 21797672);
  CHECK(parameter_count(*models::resnet({.depth = 50})) == 25557032);
  CHECK(parameter_count(*models::resnet({.depth = 101})) == 44549160);
  CHECK(parameter_count(*models::resnet({.depth = 152})) == 60192808);
  const std::int64_t other_stem = 64 * 3 * (49 - 9), other_head = 990 * 513;
  CHECK(parameter_count(*models::resnet({.num_classes = 10, .small_images = true})) ==
        11689512 - other_stem - other_head);
}

TEST_CASE("ResNet-18's parameters and buffers are named as torchvision's") {
  const auto model = models::resnet({.num_classes = 10});
  std::set<std::string> expected{"conv1.weight", "bn1.weight", "bn1.bias", "fc.weight", "fc.bias"};
  for (int stage = 1; stage <= 4; ++stage)
    for (int i = 0; i < 2; ++i) {
      const std::string block = "layer" + std::to_string(stage) + "." + std::to_string(i) + ".";
      for (const char* part : {"conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias"})
        expected.insert(block + part);
      if (stage > 1 && i == 0)
        for (const char* part : {"0.weight", "1.weight", "1.bias"}) expected.insert(block + "downsample." + part);
    }
  std::set<std::string> keys;
  for (const auto& parameter : model->named_parameters()) {
    REQUIRE(parameter.key().starts_with("module."));
    keys.insert(parameter.key().substr(7));
  }
  CHECK(keys == expected);
  CHECK(model->named_buffers().contains("module.layer4.0.downsample.1.running_var"));
  CHECK((model->named_parameters()["module.conv1.weight"].sizes() == at::IntArrayRef({64, 3, 7, 7})));
}

TEST_CASE("ResNets take any size of image, with either stem") {
  for (const bool small_images : {false, true}) {
    const auto model = models::resnet({.num_classes = 5, .in_channels = 2, .small_images = small_images});
    model->eval();
    CHECK((model->forward({{"input", at::rand({2, 2, 40, 33})}}).only().sizes() == at::IntArrayRef({2, 5})));
    CHECK((model->forward({{"input", at::rand({1, 2, 7, 7})}}).only().sizes() == at::IntArrayRef({1, 5})));
  }
}

TEST_CASE("ResNet-18 learns a few images by heart") {
  at::manual_seed(5);
  const auto model = models::resnet({.num_classes = 4});
  optim::SGD optimizer(optim::parameters_of(*model), {.lr = 0.02, .momentum = 0.9});
  const Batch batch{{"input", at::randn({4, 3, 32, 32})}, {"target", at::arange(4)}};
  model->train();
  double first = 0, last = 0;
  for (int i = 0; i < 15; ++i) {
    optimizer.zero_grad();
    const at::Tensor loss = model->loss(model->forward(batch), batch)["total"];
    loss.backward();
    if (i == 0) {
      first = loss.item<double>();
      for (const auto& parameter : model->named_parameters()) {
        INFO(parameter.key());
        CHECK(parameter.value().grad().abs().sum().item<double>() > 0);
      }
    }
    optimizer.step();
    last = loss.item<double>();
  }
  CHECK(last < 0.2 * first);
}

TEST_CASE("ResNets that cannot be are refused") {
  CHECK_THROWS_WITH_AS(models::resnet({.depth = 20}), "resnet: depth must be 18, 34, 50, 101 or 152, got 20",
                       ConfigError);
  CHECK_THROWS_WITH_AS(models::resnet({.num_classes = 0}), doctest::Contains("got 0"), ConfigError);
  CHECK_THROWS_WITH_AS(models::resnet({.in_channels = 0}), doctest::Contains("in_channels"), ConfigError);
}

}  // namespace composer::resnet_test
