#include "composer/optim/refit.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/optim/adam.h>

#include "composer/core/error.h"
#include "composer/optim/adam.h"
#include "composer/optim/named_optimizer.h"
#include "tests/support/doctest.h"

namespace composer::optim::refit_test {
namespace {

at::Tensor weight(std::int64_t dimensions) {
  return at::ones(std::vector<std::int64_t>(static_cast<std::size_t>(dimensions), 2)).requires_grad_();
}

// "conv.weight, conv.bias | fc.weight": the names of the parameters of each group.
std::string names_of(const Optimizer& optimizer, const NamedParameters& model) {
  std::string text;
  for (const auto& group : optimizer.param_groups()) {
    if (&group != &optimizer.param_groups().front()) text += " | ";
    for (std::size_t i = 0; i < group.params().size(); ++i) {
      const auto is_it = [&](const NamedParameter& one) { return one.tensor.is_same(group.params()[i]); };
      const auto found = std::ranges::find_if(model, is_it);
      text += (i == 0 ? "" : ", ") + (found == model.end() ? "?" : found->name);
    }
  }
  return text;
}

NamedParameters net() {
  return {{"conv.weight", weight(4)}, {"conv.bias", weight(1)}, {"fc.weight", weight(2)}, {"fc.bias", weight(1)}};
}

std::shared_ptr<Optimizer> two_groups(const NamedParameters& parameters) {
  return adam({.lr = 0.1, .groups = {{.match = "*.bias", .lr = 0.2}}}).make(parameters);
}

TEST_CASE("Each parameter of a replaced module joins the group that its name belongs to") {
  const NamedParameters model = net();
  struct Row {
    const char* because;
    NamedParameters now;
    const char* groups;
  };
  const at::Tensor conv = model[0].tensor, conv_bias = model[1].tensor, fc = model[2].tensor, bias = model[3].tensor;
  const Row rows[] = {
      {"nothing was replaced", model, "conv.weight, fc.weight | conv.bias, fc.bias"},
      {"the same names, other tensors",
       {{"conv.weight", conv}, {"conv.bias", conv_bias}, {"fc.weight", weight(2)}, {"fc.bias", weight(1)}},
       "conv.weight, fc.weight | conv.bias, fc.bias"},
      {"a parameter has left",
       {{"conv.weight", conv}, {"fc.weight", fc}, {"fc.bias", bias}},
       "conv.weight, fc.weight | fc.bias"},
      {"the module was wrapped, and a layer added",
       {{"conv.0.weight", conv},
        {"conv.0.bias", conv_bias},
        {"conv.1.weight", weight(2)},
        {"conv.1.bias", weight(1)},
        {"fc.weight", fc},
        {"fc.bias", bias}},
       "conv.0.weight, conv.1.weight, fc.weight | conv.0.bias, conv.1.bias, fc.bias"},
      {"all is new", {{"weights", weight(1)}}, " | weights"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.because);
    const auto optimizer = two_groups(model);
    refit(*optimizer, model, row.now);
    CHECK(names_of(*optimizer, row.now) == row.groups);
    CHECK(learning_rates(*optimizer) == std::vector<double>{0.1, 0.2});
  }
}

TEST_CASE("A new parameter whose name does not decide joins the group of those with as many dimensions") {
  const NamedParameters before = {{"block.conv.weight", weight(4)}, {"block.norm.weight", weight(1)}};
  const auto is_matrix = [](const std::string&, const at::Tensor& tensor) { return tensor.dim() > 1; };
  const auto optimizer = adam({.lr = 0.1, .groups = {{.where = is_matrix, .lr = 0.2}}}).make(before);
  NamedParameters now = before;
  now.push_back({"block.other.weight", weight(1)});
  now.push_back({"block.another.weight", weight(4)});
  refit(*optimizer, before, now);
  CHECK(names_of(*optimizer, now) == "block.norm.weight, block.other.weight | block.conv.weight, block.another.weight");
}

TEST_CASE("Parameters that stay keep their state, and those that leave lose it") {
  const NamedParameters model = net();
  for (const bool ours : {true, false}) {
    CAPTURE(ours);
    std::vector<at::Tensor> tensors;
    for (const NamedParameter& one : model) tensors.push_back(one.tensor);
    std::shared_ptr<Optimizer> optimizer = two_groups(model);
    if (!ours) optimizer = std::make_shared<torch::optim::Adam>(tensors, torch::optim::AdamOptions(0.1));
    for (const at::Tensor& tensor : tensors) tensor.mutable_grad() = at::ones_like(tensor);
    optimizer->step();
    CHECK(optimizer->state().size() == 4);
    const NamedParameters now = {{"conv.0.weight", tensors[0]}, {"fc.weight", weight(2)}};
    refit(*optimizer, model, now);
    CHECK(optimizer->state().size() == 1);
    CHECK(optimizer->state().count(tensors[0].unsafeGetTensorImpl()) == 1);
    if (ours) {
      const auto states = dynamic_cast<NamedOptimizer&>(*optimizer).state_tensors();
      CHECK(states.front().parameter == "conv.0.weight");
    }
    now[1].tensor.mutable_grad() = at::ones_like(now[1].tensor);
    CHECK_NOTHROW(optimizer->step());
    CHECK_FALSE(now[1].tensor.equal(at::ones_like(now[1].tensor)));
  }
}

TEST_CASE("What the optimizer trains beside the model stays, and what it did not train is not added") {
  const NamedParameters model = net();
  const at::Tensor other = weight(3);
  const auto optimizer = adam({.lr = 0.1}).make({model[0], {"elsewhere", other}});
  NamedParameters now = model;
  now[0] = {"conv.weight", weight(4)};
  now[2] = {"fc.0.weight", weight(2)};  // of fc, which is not trained
  refit(*optimizer, model, now);
  CHECK(names_of(*optimizer, now) == "?, conv.weight");
  CHECK(optimizer->param_groups().front().params().front().is_same(other));
  CHECK(dynamic_cast<NamedOptimizer&>(*optimizer).state_tensors().front().parameter == "elsewhere");
}

TEST_CASE("An optimizer that steps in backward updates the parameters that it was refitted for") {
  const NamedParameters model = net();
  const auto optimizer = adam({.lr = 0.1, .step_in_backward = true}).make(model);
  NamedParameters now = {model[0], {"fc.0.weight", weight(2)}};
  refit(*optimizer, model, now);
  const auto before = now[1].tensor.detach().clone();
  (now[0].tensor.sum() + now[1].tensor.sum()).backward();
  optimizer->step();
  CHECK_FALSE(now[1].tensor.equal(before));
  model[3].tensor.sum().backward();  // has left
  CHECK(model[3].tensor.grad().defined());
}

TEST_CASE("Lists for another number of groups than there are, are refused") {
  const NamedParameters model = net();
  const auto optimizer = two_groups(model);
  CHECK_THROWS_WITH_AS(dynamic_cast<NamedOptimizer&>(*optimizer).set_parameters({model}),
                       doctest::Contains("got 1 lists, must get 2"), ConfigError);
}

}  // namespace
}  // namespace composer::optim::refit_test
