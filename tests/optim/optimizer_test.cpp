#include <ATen/Parallel.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/sgd.h>

#include "composer/core/error.h"
#include "tests/optim/support.h"
#include "tests/support/doctest.h"

namespace composer::tests::optimizer_test {
namespace {

struct Candidate {
  const char* name;
  optim::AnyOptimizer optimizer;
};

std::vector<Candidate> elementwise_optimizers() {
  using namespace optim;
  return {{"sgd", sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01})},
          {"decoupled_sgdw", decoupled_sgdw({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true})},
          {"adam", adam({.amsgrad = true})},
          {"adamw", adamw()},
          {"decoupled_adamw", decoupled_adamw({.weight_decay = 0.01})},
          {"rmsprop", rmsprop({.momentum = 0.9, .centered = true})},
          {"adagrad", adagrad()}};
}

std::shared_ptr<optim::NamedOptimizer> make(const optim::AnyOptimizer& any, const optim::NamedParameters& list) {
  return std::dynamic_pointer_cast<optim::NamedOptimizer>(any.make(list));
}

}  // namespace

TEST_CASE("The decoupled optimizers end where Composer's do") {
  struct Row {
    const char* why;
    optim::AnyOptimizer optimizer;
    double first, second;
  };
  const Row rows[] = {
      {"sgdw plain", optim::decoupled_sgdw({.lr = 0.1}), .935, -1.94},
      {"sgdw decay", optim::decoupled_sgdw({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}), .85865678, -1.82206906},
      {"sgdw dampening", optim::decoupled_sgdw({.lr = 0.1, .momentum = 0.9, .dampening = 0.5}), .930505, -1.91356},
      {"sgdw nesterov", optim::decoupled_sgdw({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}),
       .8052967047, -1.7745738595},
      {"adamw", optim::decoupled_adamw({.lr = 0.1}), .7099067864, -1.6999432656},
      {"adamw decay", optim::decoupled_adamw({.lr = 0.1, .weight_decay = 0.01}), .6834363376, -1.6438820448},
      {"adamw amsgrad", optim::decoupled_adamw({.lr = 0.1, .beta2 = 0.999, .amsgrad = true}), .7075344478,
       -1.6999432656},
  };
  for (const Row& row : rows) {
    CAPTURE(row.why);
    at::Tensor p = at::tensor({1.0, -2.0}, at::kDouble).set_requires_grad(true);
    const auto optimizer = row.optimizer.make({{"p", p}});
    for (int i = 1; i <= 4; ++i) {
      if (i == 3) optim::set_learning_rate(*optimizer, 0, 0.05);
      p.mutable_grad() = at::tensor({0.1 * i, -0.2}, at::kDouble);
      optimizer->step();
    }
    CHECK(p[0].item<double>() == doctest::Approx(row.first).epsilon(1e-9));
    CHECK(p[1].item<double>() == doctest::Approx(row.second).epsilon(1e-9));
  }
}

TEST_CASE("The result does not depend on the number of threads") {
  const int before = at::get_num_threads();
  for (const Candidate& c : elementwise_optimizers()) {
    CAPTURE(c.name);
    const auto one = random_parameters(at::kFloat), two = random_parameters(at::kFloat);
    at::set_num_threads(1);
    train(*c.optimizer.make(one), tensors_of(one), 0, 5);
    at::set_num_threads(2);
    train(*c.optimizer.make(two), tensors_of(two), 0, 5);
    CHECK(equal(tensors_of(one), tensors_of(two)));
  }
  at::set_num_threads(before);
}

TEST_CASE("A parameter that becomes channels_last takes its state along") {
  for (const Candidate& c : elementwise_optimizers()) {
    CAPTURE(c.name);
    const auto plain = random_parameters(at::kFloat), turned = random_parameters(at::kFloat);
    const auto a = c.optimizer.make(plain), b = c.optimizer.make(turned);
    train(*a, tensors_of(plain), 0, 6);
    train(*b, tensors_of(turned), 0, 3);
    at::Tensor weight = turned[2].tensor;
    weight.mutable_grad().reset();
    weight.set_data(weight.contiguous(at::MemoryFormat::ChannelsLast));
    train(*b, tensors_of(turned), 3, 6);
    CHECK(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    CHECK(equal(tensors_of(plain), tensors_of(turned)));
  }
}

TEST_CASE("A gradient laid out otherwise than its parameter counts for the right elements") {
  for (const Candidate& c : elementwise_optimizers()) {
    CAPTURE(c.name);
    const at::Tensor start = at::randn({5, 7}), gradient = at::randn({7, 5}).t();
    at::Tensor a = start.clone().set_requires_grad(true), b = start.clone().set_requires_grad(true);
    a.mutable_grad() = gradient;
    b.mutable_grad() = gradient.contiguous();
    REQUIRE(a.grad().strides() != a.strides());
    c.optimizer.make({{"a", a}})->step();
    c.optimizer.make({{"b", b}})->step();
    CHECK(at::equal(a.detach(), b.detach()));
  }
}

TEST_CASE("A loaded state goes on to the bit") {
  for (const Candidate& c : elementwise_optimizers()) {
    CAPTURE(c.name);
    const auto whole = random_parameters(at::kFloat), part = random_parameters(at::kFloat);
    train(*c.optimizer.make(whole), tensors_of(whole), 0, 8);
    const auto first = make(c.optimizer, part);
    train(*first, tensors_of(part), 0, 4);
    std::vector<optim::StateTensor> saved = first->state_tensors();
    for (auto& one : saved) one.tensor = one.tensor.clone();
    const auto second = make(c.optimizer, part);
    second->load_state_tensors(saved);
    train(*second, tensors_of(part), 4, 8);
    CHECK(equal(tensors_of(whole), tensors_of(part)));
  }
}

TEST_CASE("A state that does not fit is refused by name, and changes nothing") {
  const auto list = random_parameters(at::kFloat);
  const auto optimizer = make(optim::adamw(), list);
  const std::vector<optim::StateTensor> good = optimizer->state_tensors();
  CHECK(good.size() == 3 * kShapes.size());
  CHECK(good[1].parameter == "layer0.weight");
  CHECK(good[1].key == "exp_avg");
  struct Row {
    const char* error;
    std::function<void(std::vector<optim::StateTensor>&)> spoil;
  };
  const Row rows[] = {
      {"adamw: the state lacks exp_avg of layer0.weight", [](auto& s) { s.erase(s.begin() + 1); }},
      {"adamw: the state lacks exp_avg_sq of layer0.weight", [](auto& s) { s.erase(s.begin() + 1, s.begin() + 3); }},
      {"adamw: the state has step of layer9, which is no",
       [](auto& s) {
         s.push_back({"layer9", "step", s[0].tensor});
       }},
      {"adamw: the state has square_avg of layer0.weight, which is no",
       [](auto& s) {
         s.push_back({"layer0.weight", "square_avg", s[1].tensor});
       }},
      {"adamw: the state has max_exp_avg_sq of layer0.weight, which these options",
       [](auto& s) {
         s.push_back({"layer0.weight", "max_exp_avg_sq", s[1].tensor});
       }},
      {"adamw: the state has step of layer0.weight twice", [](auto& s) { s.push_back(s[0]); }},
      {"adamw: exp_avg of layer0.weight is [17, 33] in the state, must be [33, 17]",
       [](auto& s) { s[1].tensor = s[1].tensor.t(); }},
  };
  for (const Row& row : rows) {
    auto state = good;
    row.spoil(state);
    CHECK(config_error_of([&] { optimizer->load_state_tensors(state); }).find(row.error) == 0);
  }
}

TEST_CASE("A parameter of which a state has nothing begins with none, as one that was frozen, and the others go on") {
  for (const Candidate& c : elementwise_optimizers()) {
    CAPTURE(c.name);
    const auto list = random_parameters(at::kFloat);
    const auto optimizer = make(c.optimizer, list);
    train(*optimizer, tensors_of(list), 0, 2);
    std::vector<optim::StateTensor> saved = optimizer->state_tensors();
    for (auto& one : saved) one.tensor = one.tensor.clone();
    const auto is_first = [](const optim::StateTensor& one) { return one.parameter == "layer0.weight"; };
    if (std::erase_if(saved, is_first) == 0) continue;
    const auto other = make(c.optimizer, list);
    other->load_state_tensors(saved);
    CHECK(other->state().size() == list.size() - 1);
    const auto first = other->state().find(list.front().tensor.unsafeGetTensorImpl());
    CHECK(first == other->state().end());
  }
}

TEST_CASE("Parameters without a gradient stay as they are") {
  for (const Candidate& c : elementwise_optimizers()) {
    CAPTURE(c.name);
    const auto list = random_parameters(at::kFloat), before = random_parameters(at::kFloat);
    const auto optimizer = c.optimizer.make(list);
    set_gradients(tensors_of(list), 1);
    for (at::Tensor t : tensors_of(list)) t.mutable_grad().reset();
    at::Tensor second = list[1].tensor;
    second.mutable_grad() = at::ones_like(second);
    optimizer->step();
    CHECK(at::equal(list[0].tensor, before[0].tensor));
    CHECK_FALSE(at::equal(list[1].tensor, before[1].tensor));
  }
}

TEST_CASE("Sparse gradients are used or refused by name") {
  const at::Tensor gradient =
      at::sparse_coo_tensor(at::tensor({1, 3, 1}, at::kLong).view({1, 3}), at::ones({3, 2}), {5, 2}, at::kFloat);
  for (const auto& [any, name] : {std::pair(optim::sgd({.lr = 0.1}), "sgd"), std::pair(optim::adagrad(), "adagrad")}) {
    CAPTURE(name);
    at::Tensor a = at::ones({5, 2}).set_requires_grad(true), b = at::ones({5, 2}).set_requires_grad(true);
    const auto sparse = any.make({{"a", a}}), dense = any.make({{"b", b}});
    for (int i = 0; i < 3; ++i) {
      a.mutable_grad() = gradient;
      b.mutable_grad() = gradient.to_dense();
      sparse->step();
      dense->step();
    }
    CHECK(difference({a}, {b}) < 1e-6);
  }
  at::Tensor a = at::ones({5, 2}).set_requires_grad(true);
  a.mutable_grad() = gradient;
  CHECK(config_error_of([&] {
          optim::adamw().make({{"embedding.weight", a}})->step();
        }).find("adamw: cannot use the sparse gradient of embedding.weight") == 0);
}

TEST_CASE("Updates inside backward are those after it, and leave no gradients") {
  for (const bool inside : {false, true}) {
    at::manual_seed(3);
    at::Tensor w = at::randn({6, 6}).set_requires_grad(true), b = at::randn({6}).set_requires_grad(true);
    const at::Tensor x = at::randn({4, 6});
    static std::vector<at::Tensor> expected;
    {
      const auto optimizer = optim::adamw({.lr = 0.1, .step_in_backward = inside}).make({{"w", w}, {"b", b}});
      for (int i = 0; i < 4; ++i)
        optimizer->step([&] {
          optimizer->zero_grad();
          at::Tensor loss = (x.matmul(w) + b).square().mean();
          loss.backward();
          return loss;
        });
      CHECK(w.grad().defined() != inside);
      if (!inside) expected = {w.detach().clone(), b.detach().clone()};
      if (inside) CHECK(equal({w, b}, expected));
    }
    if (inside) {  // the optimizer has gone: so have its hooks
      b.sum().backward();
      CHECK(equal({w, b}, expected));
    }
  }
}

// Counts the gradients that it sees.
struct CountingHook final : torch::autograd::PostAccumulateGradHook {
  explicit CountingHook(int& count) : count_(count) {}
  void operator()(const at::Tensor& parameter) override { count_ += parameter.mutable_grad().defined(); }

 private:
  int& count_;
};

TEST_CASE("An optimizer that steps in backward leaves the hooks of others at work, before, with and after it") {
  at::Tensor w = at::ones({3}).set_requires_grad(true);
  int seen = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(w, std::make_unique<CountingHook>(seen));
  auto first = optim::sgd({.lr = 1, .step_in_backward = true}).make({{"w", w}});
  const auto backward = [&] {
    w.mutable_grad().reset();
    w.sum().backward();
    return w.detach().clone();
  };
  CHECK(backward().equal(at::zeros({3})));
  CHECK(seen == 1);
  auto second = optim::sgd({.lr = 10, .step_in_backward = true}).make({{"w", w}});
  CHECK(backward().equal(at::full({3}, -1.0)));  // the first has used the gradient up
  CHECK(seen == 2);
  first.reset();  // from below the second
  CHECK(backward().equal(at::full({3}, -11.0)));
  second.reset();
  CHECK(backward().equal(at::full({3}, -11.0)));
  CHECK(w.grad().defined());
  CHECK(seen == 4);
}

TEST_CASE("A gradient that cannot be used is refused before any parameter, state or step count has changed") {
  for (const Candidate& c : elementwise_optimizers()) {
    CAPTURE(c.name);
    const auto list = random_parameters(at::kFloat);
    const auto optimizer = make(c.optimizer, list);
    const auto now = [&] {
      std::vector<at::Tensor> all;
      for (const at::Tensor& tensor : tensors_of(list)) all.push_back(tensor.detach().clone());
      for (const auto& [parameter, key, tensor] : optimizer->state_tensors()) all.push_back(tensor.clone());
      return all;
    };
    set_gradients(tensors_of(list), 1);
    optimizer->step();
    const std::vector<at::Tensor> before = now();
    at::Tensor last = list.back().tensor;
    last.mutable_grad() = at::ones_like(last).unsqueeze(0);
    CHECK(config_error_of([&] { optimizer->step(); }).find(": the gradient of " + list.back().name) !=
          std::string::npos);
    CHECK(equal(now(), before));
  }
}

TEST_CASE("A step that cannot be skipped is refused before a group has changed, and by its optimizer's name") {
  for (const bool decoupled : {false, true}) {
    const at::Tensor half = at::ones({3}, at::kBFloat16).set_requires_grad(true);
    const at::Tensor plain = at::ones({3}, at::kBFloat16).set_requires_grad(true);
    const std::vector<optim::ParameterGroup> groups = {{.match = "half", .momentum = 0.9}};  // comes last
    const auto optimizer = make(decoupled ? optim::decoupled_sgdw({.lr = 0.5, .dampening = 0.5, .groups = groups})
                                          : optim::sgd({.lr = 0.5, .dampening = 0.5, .groups = groups}),
                                {{"plain", plain}, {"half", half}});
    plain.mutable_grad() = at::ones_like(plain);
    half.mutable_grad() = at::ones_like(half);
    const std::string error = config_error_of([&] { optimizer->step_unless(at::zeros({})); });
    CHECK(error.starts_with(decoupled ? "decoupled_sgdw: dampening" : "sgd: dampening"));
    CHECK(plain.detach().equal(at::ones({3}, at::kBFloat16)));
    CHECK(half.detach().equal(at::ones({3}, at::kBFloat16)));
  }
}

TEST_CASE("A group that was added behind the optimizer's back is refused before a parameter has changed") {
  const at::Tensor p = at::ones({3}).set_requires_grad(true), q = at::ones({3}).set_requires_grad(true);
  const auto optimizer = make(optim::sgd({.lr = 0.5}), {{"p", p}});
  optimizer->add_param_group(torch::optim::OptimizerParamGroup({q}, std::make_unique<torch::optim::SGDOptions>(0.1)));
  for (const at::Tensor& one : {p, q}) one.mutable_grad() = at::ones_like(one);
  CHECK(config_error_of([&] { optimizer->step(); }).starts_with("sgd: add_param_group() is not supported"));
  CHECK(p.detach().equal(at::ones({3})));
}

TEST_CASE("A centered RMSprop stays finite where the gradient is always the same") {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor p = at::zeros({2000}, type).set_requires_grad(true);
    const at::Tensor g = at::linspace(0.1, 3, 2000).to(type);
    const auto optimizer = make(optim::rmsprop({.lr = 1e-3, .alpha = 0.9, .centered = true}), {{"p", p}});
    for (int i = 0; i < 300; ++i) {
      p.mutable_grad() = g.clone();
      optimizer->step();
    }
    CHECK(p.isfinite().all().item<bool>());
  }
}

}  // namespace composer::tests::optimizer_test
