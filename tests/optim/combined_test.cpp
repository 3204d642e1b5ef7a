// optim::combined(): several optimizers, each for its part of the parameters.
#include "composer/optim/combined.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/optim/optimizer_state.h"
#include "composer/optim/refit.h"
#include "tests/optim/support.h"
#include "tests/support/doctest.h"

namespace composer::tests::combined_test {
namespace {

using optim::AnyOptimizer;
using optim::NamedParameters;

bool is_bias(const optim::NamedParameter& one) { return one.name.ends_with(".bias"); }

NamedParameters only(const NamedParameters& list, bool biases) {
  NamedParameters some;
  std::ranges::copy_if(list, std::back_inserter(some), [&](const auto& one) { return is_bias(one) == biases; });
  return some;
}

struct Pair {
  const char* name;
  AnyOptimizer weights, biases;
};

// Optimizers of one class and of several, with loops on the CPU and with operators, with one key of state and with
// four.
std::vector<Pair> pairs() {
  using namespace optim;
  return {{"adam, adam", adam({.lr = 0.01}), adam({.lr = 0.1, .beta1 = 0.5})},
          {"adamw, sgd", adamw({.lr = 0.01, .amsgrad = true}), sgd({.lr = 0.1, .momentum = 0.9})},
          {"muon, adafactor", muon({.lr = 0.01}), adafactor({.lr = 0.01})},
          {"decoupled_adamw, lamb", decoupled_adamw({.lr = 0.01, .weight_decay = 1e-4}), lamb({.lr = 0.01})},
          {"groups", lion({.lr = 0.01, .groups = {{.match = "layer0.*", .lr = 0.1}}}), rmsprop({.lr = 0.01})}};
}

std::shared_ptr<optim::Combined> make(const Pair& pair, const NamedParameters& list) {
  const AnyOptimizer any = optim::combined({{"*.bias", pair.biases}, {"*", pair.weights}});
  return std::dynamic_pointer_cast<optim::Combined>(any.make(list));
}

std::vector<optim::StateTensor> copy_of(std::vector<optim::StateTensor> state) {
  for (optim::StateTensor& one : state) one.tensor = one.tensor.clone();
  return state;
}

StateDict saved(optim::Optimizer& optimizer) {
  StateDict dict;
  StateVisitor visit = StateVisitor::saving(dict);
  visit_optimizer(visit, optimizer, torch::nn::Module());
  return dict;
}

std::string error_of_loading(const StateDict& dict, optim::Optimizer& optimizer) {
  StateVisitor visit = StateVisitor::loading(dict, "checkpoint: optimizer");
  try {
    visit_optimizer(visit, optimizer, torch::nn::Module());
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("Each part of a combined optimizer is trained to the bit as its own optimizer alone trains it") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const Pair& pair : pairs()) {
      CAPTURE(pair.name);
      const auto together = random_parameters(type), apart = random_parameters(type);
      const auto combined = make(pair, together);
      const auto weights = pair.weights.make(only(apart, false)), biases = pair.biases.make(only(apart, true));
      for (std::uint64_t i = 0; i < 6; ++i) {
        for (const auto* list : {&together, &apart}) set_gradients(tensors_of(*list), i);
        const at::Tensor found_inf = at::full({}, i == 2 ? 1.0F : 0.0F);
        combined->step_unless(found_inf);
        for (const auto& one : {weights, biases}) dynamic_cast<optim::SkippableStep&>(*one).step_unless(found_inf);
        if (i == 3)  // as a schedule does it, half the rate of each group
          for (const auto& one : {std::static_pointer_cast<optim::Optimizer>(combined), weights, biases})
            for (auto& group : one->param_groups()) group.options().set_lr(group.options().get_lr() / 2);
      }
      CHECK(equal(tensors_of(together), tensors_of(apart)));
    }
}

TEST_CASE("A parameter is trained by the first part that matches it, in the groups of its optimizer") {
  const auto optimizer = std::dynamic_pointer_cast<optim::Combined>(
      optim::combined(
          {{.optimizer = optim::sgd({.lr = 3}), .where = [](const auto&, const at::Tensor& t) { return t.dim() == 4; }},
           {"*.weight", optim::adamw({.lr = 1, .groups = {{.match = "layer5.*", .lr = 2}}})},
           {"*", optim::adam({.lr = 4})}})
          .make(random_parameters(at::kFloat)));
  CHECK(optim::learning_rates(*optimizer) == std::vector<double>{3, 1, 2, 4});
  std::vector<std::string> names;
  for (const auto& one : optimizer->named_parameters()) names.push_back(one.name);
  CHECK(names == std::vector<std::string>{"layer2.weight", "layer0.weight", "layer5.weight", "layer1.bias",
                                          "layer3.bias", "layer4.bias"});
  CHECK(dynamic_cast<const optim::SGD*>(&optimizer->rule(0)) != nullptr);
  CHECK(dynamic_cast<const optim::AdamW*>(&optimizer->rule(2)) != nullptr);
  CHECK(dynamic_cast<const optim::Adam*>(&optimizer->rule(3)) != nullptr);
  CHECK(&optimizer->rule(1) == &optimizer->rule(2));
  CHECK(optimizer->table().find("group 1 (adamw): 1 tensor, 561 numbers: layer0.weight\n  lr 1 ") != std::string::npos);
}

TEST_CASE("Parts that cannot be are refused") {
  const auto list = random_parameters(at::kFloat);
  const AnyOptimizer sgd = optim::sgd({.lr = 1}), in_backward = optim::sgd({.lr = 1, .step_in_backward = true});
  const AnyOptimizer of_torch([](const NamedParameters& given) {
    return std::make_shared<torch::optim::SGD>(tensors_of(given), torch::optim::SGDOptions(0.1));
  });
  struct Row {
    std::vector<optim::OptimizerPart> parts;
    const char* error;
  };
  const Row rows[] = {
      {{}, "combined: there are no parts; give"},
      {{{"*", {}}}, "combined: parts[0] has none; give it the options of one, such as optim::adam({...})"},
      {{{"*", sgd.make(list)}}, "combined: parts[0] has an optimizer that exists; give it the options of one"},
      {{{"*", sgd}, {"", sgd}}, "combined: parts[1] must have exactly one of match and where"},
      {{{"*", of_torch}}, "combined: parts[0] (*): the optimizer must be one of composer/optim, and is SGD"},
      {{{"*", sgd}, {"*.bias", sgd}},
       "combined: parts[1] (*.bias) has no parameters: all that match are in earlier ones"},
      {{{"*.gamma", sgd}, {"*", sgd}}, "combined: parts[0] (*.gamma) has no parameters: no parameter matches"},
      {{{"*.bias", sgd}}, "combined: layer0.weight and 2 more parameters are in no part; add one, or {\"*\", ...}"},
      {{{"*.bias", sgd}, {"layer0.*", sgd}, {"layer2.*", sgd}}, "combined: layer5.weight is in no part; add one"},
      {{{"*.bias", sgd}, {"*", in_backward}}, "combined: parts[1] (*): step_in_backward must be the same in all parts"},
      {{{"*.bias", sgd}, {"*", optim::adamw({.groups = {{.match = "x"}}})}},
       "adamw: groups[0] (x) has no parameters: no parameter matches"}};
  for (const Row& row : rows) {
    CAPTURE(row.error);
    const std::string error = config_error_of([&] { optim::combined(row.parts).make(list); });
    CHECK_MESSAGE(error.starts_with(row.error), error);
  }
  const at::Tensor whole = at::ones({4}), half = whole.narrow(0, 0, 2);
  CHECK(config_error_of([&] {
          optim::combined({{"a", sgd}, {"b", sgd}}).make({{"a", whole}, {"b", half.detach()}});
        }).find("share memory") != std::string::npos);
}

TEST_CASE("The state of a combined optimizer is by the names of parameters and goes on to the bit") {
  for (const Pair& pair : pairs()) {
    CAPTURE(pair.name);
    const auto whole = random_parameters(at::kFloat), part = random_parameters(at::kFloat);
    train(*make(pair, whole), tensors_of(whole), 0, 8);
    const auto first = make(pair, part);
    train(*first, tensors_of(part), 0, 4);
    const auto second = make(pair, part);
    second->load_state_tensors(copy_of(first->state_tensors()));
    const auto third = make(pair, part);
    CHECK(error_of_loading(saved(*second), *third) == "no error");
    train(*third, tensors_of(part), 4, 8);
    CHECK(equal(tensors_of(whole), tensors_of(part)));
  }
}

TEST_CASE("The state of a parameter is asked for under the keys of the optimizer that trains it") {
  const auto list = random_parameters(at::kFloat);
  const auto optimizer = make(pairs()[1], list);
  train(*optimizer, tensors_of(list), 0, 1);
  for (const auto& one : list) {
    CAPTURE(one.name);
    CHECK(optimizer->state_tensor(one.tensor, "momentum_buffer").defined() == is_bias(one));
    CHECK(optimizer->state_tensor(one.tensor, "max_exp_avg_sq").defined() != is_bias(one));
  }
  CHECK(optimizer->state_tensors().size() == 3 + 3 * 4);
}

TEST_CASE("State of another optimizer for a parameter is refused, also where it would fit") {
  using namespace optim;
  const auto list = random_parameters(at::kFloat);
  const auto with = [&](const AnyOptimizer& biases) { return make({"", adam(), biases}, list); };
  const auto before = with(adam());
  train(*before, tensors_of(list), 0, 1);
  const StateDict state = saved(*before);
  CHECK(error_of_loading(state, *with(adam({.lr = 3}))) == "no error");
  CHECK(error_of_loading(state, *with(adamw())) ==
        "checkpoint: optimizer: has the state of layer1.bias for Adam, but this run has AdamW for it; give it the "
        "same, or set load_ignore_keys = {\"optimizer\"}");
  CHECK(error_of_loading(state, *adam().make(list)) ==
        "checkpoint: was written with the optimizer Combined, but this run has Adam");
  CHECK(config_error_of([&] {
          with(sgd({.lr = 1, .momentum = 0.9}))->load_state_tensors(before->state_tensors());
        }).find("combined: the state has exp_avg of layer1.bias, which is not") == 0);
}

TEST_CASE("Where all parts step in backward, parameters are updated as after it, and no gradients are left") {
  std::vector<at::Tensor> expected;
  for (const bool inside : {false, true}) {
    at::manual_seed(3);
    at::Tensor w = at::randn({6, 6}).set_requires_grad(true), b = at::randn({6}).set_requires_grad(true);
    const at::Tensor x = at::randn({4, 6});
    auto optimizer = optim::combined({{"w", optim::adamw({.lr = 0.1, .step_in_backward = inside})},
                                      {"b", optim::sgd({.lr = 0.1, .momentum = 0.9, .step_in_backward = inside})}})
                         .make({{"w", w}, {"b", b}});
    for (int i = 0; i < 4; ++i)
      optimizer->step([&] {
        optimizer->zero_grad();
        at::Tensor loss = (x.matmul(w) + b).square().mean();
        loss.backward();
        return loss;
      });
    CHECK(w.grad().defined() != inside);
    if (!inside) expected = {w.detach().clone(), b.detach().clone()};
    optimizer.reset();
    b.sum().backward();  // its hooks have gone
    CHECK(equal({w, b}, expected));
  }
}

TEST_CASE("A parameter that is replaced, removed or new is trained by the optimizer of its part") {
  const auto list = random_parameters(at::kFloat);
  const auto optimizer = make(pairs()[1], list);
  train(*optimizer, tensors_of(list), 0, 1);
  const at::Tensor now = at::ones({5}).set_requires_grad(true);
  optimizer->replace_parameter(list[1].tensor, now);
  optimizer->remove_parameter(list[0].tensor);
  NamedParameters before(list.begin() + 1, list.end());
  before[0].tensor = now;
  NamedParameters after = before;
  after.push_back({"layer1.extra.bias", at::ones({7}).set_requires_grad(true)});
  optim::refit(*optimizer, before, after);
  train(*optimizer, tensors_of(after), 0, 1);
  CHECK(optimizer->named_parameters().size() == after.size());
  for (const at::Tensor& bias : {now, after.back().tensor}) {
    CHECK(optimizer->state_tensor(bias, "momentum_buffer").defined());
    CHECK_FALSE(optimizer->state_tensor(bias, "exp_avg").defined());
  }
}

}  // namespace composer::tests::combined_test
