#include "composer/surgery/replace.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/models/gpt.h"
#include "composer/models/mnist_cnn.h"
#include "composer/models/resnet.h"
#include "composer/models/resnet_cifar.h"
#include "tests/support/doctest.h"

namespace composer::test::replace_test {
namespace {

namespace nn = torch::nn;
using Names = std::vector<std::string>;

// Twice what it wraps, by a weight.
struct Scaled : nn::Module {
  Layer inner;
  at::Tensor gain = register_parameter("gain", at::full({1}, 2.));
  explicit Scaled(Layer what) : inner(this, "inner", std::move(what)) {}
  at::Tensor forward(const at::Tensor& x) { return inner(x) * gain; }
};

Layer scale(const std::string&, const Layer& place) { return std::make_shared<Scaled>(place.lift()); }

template <class Holder>
Replacements scale_all(nn::Module& model) {
  return replace_modules<Scaled>(model, only<Holder>(scale));
}

Names names_of(const Replacements& done) {
  Names names;
  for (const auto& one : done.made) names.push_back(one.name);
  return names;
}

struct Net : nn::Module {
  Layer first{this, "first", nn::Linear(3, 3)};
  Layer stack{this, "stack", nn::Sequential(nn::Linear(3, 3), nn::ReLU(), Layer(nn::Sequential(nn::Linear(3, 3))))};
  nn::Linear typed{register_module("typed", nn::Linear(3, 3))};
  nn::Sequential plain{register_module("plain", nn::Sequential(nn::Linear(3, 3), nn::ReLU()))};
  at::Tensor forward(const at::Tensor& x) { return plain->forward(typed(stack(first(x)))); }
};

TEST_CASE("modules in Layers and in Sequentials are replaced wherever they are nested; typed members are reported") {
  const auto net = std::make_shared<Net>();
  const at::Tensor x = at::randn({2, 3});
  const Replacements done = scale_all<nn::Linear>(*net);
  CHECK((names_of(done) == Names{"first", "stack.0", "stack.2.0", "plain.0"}));
  CHECK((done.out_of_reach == Names{"typed"}));
  CHECK((done.never_called() == names_of(done)));
  net->forward(x);
  CHECK(done.never_called().empty());
  CHECK(net->named_parameters().contains("stack.2.0.gain"));
  CHECK(net->named_parameters().contains("plain.0.inner.weight"));
  CHECK(net->named_parameters().size() == 2 * 5 + 4);
}

TEST_CASE("a replaced model computes what the replacements compute") {
  struct Line : nn::Module {
    Layer a{this, "a", nn::Linear(3, 3)};
    nn::Sequential b{register_module("b", nn::Sequential(nn::Linear(3, 3)))};
    at::Tensor forward(const at::Tensor& x) { return b->forward(a(x)); }
  };
  const auto net = std::make_shared<Line>();
  const at::Tensor x = at::randn({2, 3});
  const at::Tensor expected = net->b->forward(net->a(x) * 2) * 2;
  CHECK(scale_all<nn::Linear>(*net).made.size() == 2);
  CHECK(net->forward(x).equal(expected));
  net->forward(x).sum().backward();
  for (const auto& parameter : net->parameters()) CHECK(parameter.grad().defined());
}

TEST_CASE("applying a policy twice changes nothing more") {
  const auto net = std::make_shared<Net>();
  scale_all<nn::Linear>(*net);
  CHECK(scale_all<nn::Linear>(*net).made.empty());
}

TEST_CASE("a policy that returns nothing leaves a model as it is") {
  const auto net = std::make_shared<Net>();
  const auto before = net->modules();
  const Replacements done = replace_modules(*net, [](const std::string&, const Layer&) { return Layer(); });
  CHECK(done.made.empty());
  CHECK(done.out_of_reach.empty());
  CHECK(done.table().empty());
  CHECK((net->modules() == before));
}

TEST_CASE("a place that two parents share, and a module in two places, are replaced once, by the same module") {
  struct Half : nn::Module {
    Layer line;
    explicit Half(Layer what) : line(this, "line", std::move(what)) {}
  };
  const Layer place(nn::Linear(2, 2));
  const Layer other_place = place.lift();
  struct Whole : nn::Module {};
  const auto whole = std::make_shared<Whole>();
  whole->register_module("a", std::make_shared<Half>(place));
  whole->register_module("b", std::make_shared<Half>(place));
  whole->register_module("c", std::make_shared<Half>(other_place));
  const Replacements done = scale_all<nn::Linear>(*whole);
  CHECK((names_of(done) == Names{"a.line", "c.line"}));
  CHECK((place->module() == other_place->module()));
}

TEST_CASE("named() asks only about places whose name fits") {
  const auto net = std::make_shared<Net>();
  const Replacements done = replace_modules<Scaled>(*net, named("stack.*", only<nn::Linear>(scale)));
  CHECK((names_of(done) == Names{"stack.0", "stack.2.0"}));
  CHECK(done.out_of_reach.empty());
}

TEST_CASE("new modules get the floating-point type of those before them") {
  const auto net = std::make_shared<Net>();
  net->to(at::kDouble);
  replace_modules(*net, only<nn::Linear>([](const std::string&, const Layer&) { return Layer(nn::Linear(3, 3)); }));
  CHECK((net->first->parameters().front().scalar_type() == at::kDouble));
}

TEST_CASE("the table names each place with what was and what is there") {
  const auto net = std::make_shared<Net>();
  const Replacements done = replace_modules(
      *net, named("stack.?", only<nn::Linear>([](const std::string&, const Layer&) { return Layer(nn::Identity()); })));
  CHECK(done.table() ==
        "stack.0  torch::nn::Linear(in_features=3, out_features=3, bias=true) -> torch::nn::Identity()\n");
}

TEST_CASE("what is replaced below a module that is wrapped shows through the wrapper") {
  const auto net = std::make_shared<Net>();
  const Replacements done =
      replace_modules<Scaled>(*net, named("stack*", [](const std::string& name, const Layer& place) {
        return place->as<nn::ReLUImpl>() ? Layer() : scale(name, place);
      }));
  CHECK((names_of(done) == Names{"stack", "stack.0", "stack.2", "stack.2.0"}));
  CHECK(net->named_parameters().contains("stack.inner.2.inner.0.gain"));
  net->forward(at::randn({2, 3})).sum().backward();
  for (const auto& parameter : net->parameters()) CHECK(parameter.grad().defined());
}

TEST_CASE("an empty policy is refused") {
  const auto net = std::make_shared<Net>();
  CHECK_THROWS_AS(replace_modules(*net, {}), ConfigError);
}

// A replaced layer would never be called if a model kept its layers beside what it registers.
TEST_CASE("every replaced layer of the library's models is called") {
  const auto check = [](Model& model, const Batch& batch, std::size_t at_least) {
    const at::Tensor before = model.forward(batch).only();
    Replacements done = scale_all<nn::Conv2d>(model);
    Replacements lines = scale_all<nn::Linear>(model);
    CHECK(done.made.size() + lines.made.size() >= at_least);
    CHECK(done.out_of_reach.empty());
    CHECK(lines.out_of_reach.empty());
    CHECK(!model.forward(batch).only().allclose(before));
    CHECK(done.never_called().empty());
    CHECK(lines.never_called().empty());
  };
  check(*models::resnet_cifar(), {{"input", at::randn({2, 3, 16, 16})}}, 22);
  check(*models::resnet(), {{"input", at::randn({2, 3, 32, 32})}}, 21);
  check(*models::mnist_cnn(), {{"input", at::randn({2, 1, 28, 28})}}, 4);
  check(*models::gpt({.vocabulary = 11, .sequence_length = 8, .width = 8, .depth = 2, .heads = 2, .tied = false}),
        {{"input_ids", at::randint(11, {2, 8})}}, 9);
}

}  // namespace
}  // namespace composer::test::replace_test
