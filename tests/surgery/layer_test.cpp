#include "composer/surgery/layer.h"

#include <sstream>

#include <ATen/ATen.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::test::layer_test {
namespace {

namespace nn = torch::nn;

struct Plain : nn::Module {
  nn::Conv2d conv{register_module("conv", nn::Conv2d(nn::Conv2dOptions(3, 4, 3)))};
  nn::BatchNorm2d bn{register_module("bn", nn::BatchNorm2d(4))};
  nn::Sequential head{register_module("head", nn::Sequential(nn::Linear(4, 5), nn::Linear(5, 2)))};
  at::Tensor forward(const at::Tensor& x) { return head->forward(bn(conv(x)).relu().mean({2, 3})); }
};

struct InLayers : nn::Module {
  Layer conv{this, "conv", nn::Conv2d(nn::Conv2dOptions(3, 4, 3))};
  Layer bn{this, "bn", nn::BatchNorm2d(4)};
  Layer head{this, "head", nn::Sequential(nn::Linear(4, 5), nn::Linear(5, 2))};
  at::Tensor forward(const at::Tensor& x) { return head(bn(conv(x)).relu().mean({2, 3})); }
};

template <class Net>
std::shared_ptr<Net> seeded() {
  at::manual_seed(5);
  return std::make_shared<Net>();
}

std::vector<std::string> names(const nn::Module& module) {
  std::vector<std::string> all = module.named_parameters().keys();
  for (const std::string& name : module.named_buffers().keys()) all.push_back(name);
  for (const auto& child : module.named_modules()) all.push_back(child.key() + ":" + child.value()->name());
  return all;
}

std::string printed(const nn::Module& module) {
  std::ostringstream text;
  text << module;
  return text.str().substr(text.str().find('\n'));
}

struct Doubled : nn::Module {
  Layer inner;
  explicit Doubled(Layer what) : inner(this, "inner", std::move(what)) {}
  at::Tensor forward(const at::Tensor& x) { return inner(x) * 2; }
};

TEST_CASE("a model of Layers has the names, types, print-out, numbers and gradients of the model without them") {
  const auto plain = seeded<Plain>();
  const auto layers = seeded<InLayers>();
  CHECK(names(*plain).size() == names(*layers).size());
  for (std::size_t i = 1; i < names(*plain).size(); ++i) {
    const std::string name = names(*plain)[i];
    if (name.starts_with(":")) continue;  // the model itself, whose class has another name
    CHECK(name == names(*layers)[i]);
  }
  CHECK(printed(*plain) == printed(*layers));
  const at::Tensor x = at::randn({2, 3, 6, 6});
  const at::Tensor expected = plain->forward(x), found = layers->forward(x);
  CHECK(found.equal(expected));
  expected.sum().backward();
  found.sum().backward();
  for (std::size_t i = 0; i < plain->parameters().size(); ++i)
    CHECK(plain->parameters()[i].grad().equal(layers->parameters()[i].grad()));
}

TEST_CASE("train(), to(), zero_grad() and the archive reach what a Layer holds") {
  const auto net = seeded<InLayers>();
  net->eval();
  CHECK(!net->bn->is_training());
  CHECK(!net->bn->as<nn::BatchNorm2dImpl>()->is_training());
  CHECK(!net->head->as<nn::SequentialImpl>()->children().front()->is_training());
  net->train();
  CHECK(net->bn->as<nn::BatchNorm2dImpl>()->is_training());
  net->to(at::kDouble);
  CHECK((net->conv->as<nn::Conv2dImpl>()->weight.scalar_type() == at::kDouble));
  const at::Tensor x = at::randn({2, 3, 6, 6}, at::kDouble);
  net->forward(x).sum().backward();
  net->zero_grad();
  CHECK(!net->conv->as<nn::Conv2dImpl>()->weight.grad().defined());

  std::stringstream file;
  torch::serialize::OutputArchive out;
  net->save(out);
  out.save_to(file);
  const auto other = std::make_shared<InLayers>();
  other->to(at::kDouble);
  torch::serialize::InputArchive in;
  in.load_from(file);
  other->load(in);
  CHECK(other->forward(x).equal(net->forward(x)));
}

TEST_CASE("what a Layer holds can be replaced without its parent knowing") {
  const auto net = seeded<InLayers>();
  const at::Tensor x = at::randn({2, 3, 6, 6});
  const at::Tensor before = net->conv(x);
  net->eval();
  net->conv->hold(std::make_shared<Doubled>(net->conv.lift()));
  CHECK(net->conv(x).equal(before * 2));
  CHECK(!net->conv->is_training());
  CHECK(!net->conv->as<Doubled>()->inner->is_training());
  CHECK(net->named_parameters().contains("conv.inner.weight"));
  CHECK(!net->named_parameters().contains("conv.weight"));
  CHECK(net->conv->get<nn::Conv2d>().is_empty());
  CHECK(net->conv->as<Doubled>()->inner->get<nn::Conv2d>()->options.out_channels() == 4);
}

TEST_CASE("a copy of a Layer is the same place; lift() and clone() make new ones") {
  Layer place(nn::Linear(2, 2));
  const Layer same = place, lifted = place.lift();
  const Layer cloned(std::dynamic_pointer_cast<LayerImpl>(place->clone()));
  const at::Tensor x = at::randn({1, 2});
  const at::Tensor before = place(x);
  CHECK(cloned(x).equal(before));
  place->hold(nn::Linear(2, 3).ptr());
  CHECK((same(x).sizes() == at::IntArrayRef({1, 3})));
  CHECK(lifted(x).equal(before));
  {
    const at::NoGradGuard no_grad;
    lifted->as<nn::LinearImpl>()->bias.add_(1);
  }
  CHECK(cloned(x).equal(before));
}

struct Cloned : nn::Cloneable<Cloned> {
  Cloned() { reset(); }
  void reset() override { line = Layer(this, "line", nn::Linear(3, 2)); }
  Layer line;
};

TEST_CASE("a torch::nn::Cloneable with Layers is cloned with the weights, and with the replaced modules") {
  const auto net = std::make_shared<Cloned>();
  const auto copy = std::dynamic_pointer_cast<Cloned>(net->clone());
  const at::Tensor x = at::randn({4, 3});
  CHECK(copy->line(x).equal(net->line(x)));
  CHECK(!copy->line->parameters().front().is_same(net->line->parameters().front()));
}

TEST_CASE("an entry of a Sequential is called, lifted and cloned as a Layer") {
  nn::Sequential sequential(nn::Linear(3, 2));
  const Layer place(std::make_shared<LayerImpl>(*sequential->begin()));
  const at::Tensor x = at::randn({4, 3});
  CHECK(place(x).equal(sequential->forward(x)));
  CHECK(place.lift()(x).equal(sequential->forward(x)));
  const Layer copy(std::dynamic_pointer_cast<LayerImpl>(place->clone()));
  CHECK(copy(x).equal(place(x)));
  CHECK(!copy->parameters().front().is_same(place->parameters().front()));
}

TEST_CASE("a Layer without a module is refused") {
  CHECK_THROWS_AS(Layer(nn::Linear(nullptr)), ConfigError);
  Layer place(nn::Linear(2, 2));
  CHECK_THROWS_AS(place->hold(std::shared_ptr<nn::LinearImpl>()), ConfigError);
  CHECK((place(at::ones({1, 2})).sizes() == at::IntArrayRef({1, 2})));
}

TEST_CASE("bare() is the module in a Layer, or the module itself") {
  Layer place(nn::Linear(2, 2));
  CHECK((bare(*place).as<nn::Linear>() == place->as<nn::LinearImpl>()));
  nn::Linear line(2, 2);
  CHECK((&bare(*line) == line.get()));
}

}  // namespace
}  // namespace composer::test::layer_test
