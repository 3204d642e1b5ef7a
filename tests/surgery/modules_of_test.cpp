// modules_of() finds the modules of a type by name, in Layers and outside of them, in ready models and in one's own.
#include "composer/surgery/modules_of.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/model.h"
#include "composer/models/resnet.h"
#include "tests/support/doctest.h"

namespace composer::test::modules_of_test {
namespace {

namespace nn = torch::nn;

struct Mixed : nn::Module {
  nn::Conv2d plain{register_module("plain", nn::Conv2d(3, 4, 3))};
  Layer placed{this, "placed", nn::Conv2d(4, 4, 3)};
  nn::Sequential tail{register_module("tail", nn::Sequential(nn::Conv2d(4, 4, 1), nn::BatchNorm2d(4)))};
};

TEST_CASE(
    "All modules of a type are found, in a Layer and outside of one, by their names, and are those of the model") {
  const Mixed model;
  const auto found = modules_of<nn::Conv2d>(model);
  REQUIRE(found.size() == 3);
  CHECK(found[0].first == "plain");
  CHECK(found[0].second == model.plain.ptr());
  CHECK(found[1].first == "placed");
  CHECK(found[1].second->weight.is_same(model.placed->parameters()[0]));
  CHECK(found[2].first == "tail.0");
  CHECK(modules_of<nn::Linear>(model).empty());
}

TEST_CASE(
    "The batch norms of a ready model can be found and set to evaluation, after which they keep their statistics") {
  const auto model = models::resnet({.depth = 18, .num_classes = 3});
  model->train();
  int by_libtorch = 0;
  for (const auto& module : model->modules()) by_libtorch += module->as<nn::BatchNorm2d>() != nullptr ? 1 : 0;
  CHECK(by_libtorch == 0);  // which is why there is modules_of()
  const auto norms = modules_of<nn::BatchNorm2d>(*model);
  CHECK(norms.size() == 20);
  for (const auto& [name, norm] : norms) norm->eval();
  const at::Tensor before = norms.back().second->running_mean.clone();
  model->forward({{"input", at::ones({2, 3, 32, 32})}});
  CHECK(norms.back().second->running_mean.equal(before));
  CHECK(modules_of<nn::Conv2d>(*model).size() == 20);
}

}  // namespace
}  // namespace composer::test::modules_of_test
