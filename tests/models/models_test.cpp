#include <set>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/models/mlp.h"
#include "composer/models/mnist_cnn.h"
#include "composer/models/resnet_cifar.h"
#include "tests/models/support.h"
#include "tests/support/doctest.h"

namespace composer::models_test {
namespace {

using test::parameter_count;

Batch images(std::int64_t n, std::int64_t channels = 1, std::int64_t size = 28) {
  return {{"input", at::rand({n, channels, size, size})}, {"target", at::arange(n).remainder(10)}};
}

// Every parameter gets a gradient that is not zero everywhere.
void check_gradients(Model& model, const Batch& batch) {
  model.train();
  model.loss(model.forward(batch), batch)["total"].backward();
  for (const auto& parameter : model.named_parameters()) {
    INFO(parameter.key());
    REQUIRE(parameter.value().grad().defined());
    CHECK(parameter.value().grad().abs().sum().item<double>() > 0);
    CHECK(parameter.value().grad().isfinite().all().item<bool>());
  }
}

}  // namespace

TEST_CASE("The MLP has the parameters of its layers, and takes images") {
  const auto model = models::mlp({.features = {784, 32, 10}});
  CHECK(parameter_count(*model) == 25450);
  CHECK(model->num_classes() == 10);
  CHECK((model->forward(images(3)).only().sizes() == at::IntArrayRef({3, 10})));
  CHECK(model->named_parameters().contains("module.fc2.bias"));
  check_gradients(*model, images(3));
  const auto linear = models::mlp({.features = {4, 2}});
  CHECK(parameter_count(*linear) == 10);
  CHECK(linear->forward(at::full({1, 4}, -1.f)).only().numel() == 2);
}

TEST_CASE("The MNIST net has its 1,199,882 parameters, and dropout in training alone") {
  const auto model = models::mnist_cnn();
  CHECK(parameter_count(*model) == 1199882);
  const Batch batch = images(4);
  CHECK((model->forward(batch).only().sizes() == at::IntArrayRef({4, 10})));
  model->train();
  CHECK_FALSE(model->forward(batch).only().equal(model->forward(batch).only()));
  model->eval();
  CHECK(model->forward(batch).only().equal(model->forward(batch).only()));
  check_gradients(*model, batch);
}

TEST_CASE("ResNets have the parameters of their depth") {
  // by hand for depth 20, one channel: 144 + 32, 3 * 4672, 14528 + 2 * 18560, 57728 + 2 * 73984, 650
  CHECK(parameter_count(*models::resnet_cifar({.depth = 20, .in_channels = 1})) == 272186);
  for (std::int64_t depth : {8, 14, 32, 44}) {
    const std::int64_t n = (depth - 2) / 6;
    const std::int64_t block16 = 2 * (9 * 16 * 16 + 32), block32 = 2 * (9 * 32 * 32 + 64),
                       block64 = 2 * (9 * 64 * 64 + 128);
    const std::int64_t first32 = 9 * 16 * 32 + 9 * 32 * 32 + 16 * 32 + 3 * 64,
                       first64 = 9 * 32 * 64 + 9 * 64 * 64 + 32 * 64 + 3 * 128;
    CHECK(parameter_count(*models::resnet_cifar({.depth = depth, .num_classes = 7})) ==
          27 * 16 + 32 + n * block16 + first32 + (n - 1) * block32 + first64 + (n - 1) * block64 + 65 * 7);
  }
}

TEST_CASE("A ResNet's parameters and buffers are named as torchvision names them") {
  const auto model = models::resnet_cifar({.depth = 8});
  std::set<std::string> keys;
  for (const auto& parameter : model->named_parameters()) keys.insert(parameter.key());
  for (const char* name : {"module.conv1.weight", "module.bn1.bias", "module.layer1.0.conv1.weight",
                           "module.layer1.0.bn2.weight", "module.layer2.0.downsample.0.weight",
                           "module.layer3.0.downsample.1.bias", "module.fc.weight", "module.fc.bias"})
    CHECK_MESSAGE(keys.count(name) == 1, name);
  CHECK(keys.size() == 29);
  CHECK(model->named_buffers().contains("module.layer2.0.downsample.1.running_mean"));
  CHECK_FALSE(keys.count("module.layer1.0.downsample.0.weight"));
}

TEST_CASE("A ResNet trains on any size of image, and its output is the same in both memory formats") {
  const auto model = models::resnet_cifar({.depth = 8, .in_channels = 3});
  check_gradients(*model, images(4, 3, 20));
  model->eval();
  const Batch batch = images(2, 3, 32);
  const at::Tensor expected = model->forward(batch).only();
  CHECK((expected.sizes() == at::IntArrayRef({2, 10})));
  for (auto& parameter : model->parameters())
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  const Batch last{{"input", batch["input"].contiguous(at::MemoryFormat::ChannelsLast)}, {"target", batch["target"]}};
  CHECK(at::allclose(model->forward(last).only(), expected, 1e-4, 1e-5));
  for (auto& parameter : model->parameters()) parameter.mutable_grad() = at::Tensor();
  check_gradients(*model, last);
}

TEST_CASE("Options of a model that cannot be are refused") {
  CHECK_THROWS_WITH_AS(models::mlp({.features = {5}}), doctest::Contains("at least two"), ConfigError);
  CHECK_THROWS_WITH_AS(models::mlp({.features = {5, 0, 2}}), doctest::Contains("got 0"), ConfigError);
  CHECK_THROWS_WITH_AS(models::mnist_cnn({.dropout1 = 1}), doctest::Contains("[0, 1), got 1"), ConfigError);
  CHECK_THROWS_WITH_AS(models::mnist_cnn({.num_classes = 0}), doctest::Contains("got 0"), ConfigError);
  for (std::int64_t depth : {-4, 0, 2, 7, 18, 21})
    CHECK_THROWS_WITH_AS(models::resnet_cifar({.depth = depth}), doctest::Contains("6n + 2"), ConfigError);
  CHECK_THROWS_WITH_AS(models::resnet_cifar({.in_channels = 0}), doctest::Contains("in_channels"), ConfigError);
}

}  // namespace composer::models_test
