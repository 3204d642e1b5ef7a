#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "tests/optim/support.h"
#include "tests/support/doctest.h"

namespace composer::tests::against_torch_test {
namespace {

using Reference = std::function<std::shared_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

template <class Optimizer, class Options>
Reference reference(Options options) {
  return
      [options](std::vector<at::Tensor> tensors) { return std::make_shared<Optimizer>(std::move(tensors), options); };
}

struct Case {
  const char* name;
  optim::AnyOptimizer ours;
  Reference reference;
};

std::vector<Case> cases() {
  namespace to = torch::optim;
  using optim::adagrad, optim::adam, optim::adamw, optim::rmsprop, optim::sgd;
  return {
      {"sgd", sgd({.lr = 0.1}), reference<to::SGD>(to::SGDOptions(0.1))},
      {"sgd momentum", sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}),
       reference<to::SGD>(to::SGDOptions(0.1).momentum(0.9).weight_decay(0.01))},
      {"sgd dampening", sgd({.lr = 0.1, .momentum = 0.9, .dampening = 0.5}),
       reference<to::SGD>(to::SGDOptions(0.1).momentum(0.9).dampening(0.5))},
      {"sgd nesterov", sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}),
       reference<to::SGD>(to::SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true))},
      {"adam", adam({.lr = 0.01}), reference<to::Adam>(to::AdamOptions(0.01))},
      {"adam l2 amsgrad", adam({.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.1, .amsgrad = true}),
       reference<to::Adam>(to::AdamOptions(0.01).betas({0.8, 0.9}).weight_decay(0.1).amsgrad(true))},
      {"adamw", adamw({.lr = 0.01}), reference<to::AdamW>(to::AdamWOptions(0.01))},
      {"adamw amsgrad", adamw({.lr = 0.01, .weight_decay = 0.2, .amsgrad = true}),
       reference<to::AdamW>(to::AdamWOptions(0.01).weight_decay(0.2).amsgrad(true))},
      {"rmsprop", rmsprop({.lr = 0.01}), reference<to::RMSprop>(to::RMSpropOptions(0.01))},
      {"rmsprop all", rmsprop({.lr = 0.01, .alpha = 0.9, .momentum = 0.5, .weight_decay = 0.1, .centered = true}),
       reference<to::RMSprop>(
           to::RMSpropOptions(0.01).alpha(0.9).momentum(0.5).weight_decay(0.1).centered(true).eps(1e-8))},
      {"adagrad", adagrad({.lr = 0.1, .lr_decay = 0.01, .weight_decay = 0.01, .initial_accumulator_value = 0.1}),
       reference<to::Adagrad>(
           to::AdagradOptions(0.1).lr_decay(0.01).weight_decay(0.01).initial_accumulator_value(0.1))},
  };
}

// Every second row of a larger tensor: memory with gaps, which the loops over memory must not be given.
optim::NamedParameters with_gaps(const optim::NamedParameters& list) {
  optim::NamedParameters sparse;
  for (const auto& [name, tensor] : list) {
    at::Tensor wide = at::zeros({tensor.numel(), 2}, tensor.options().requires_grad(false));
    at::Tensor view = wide.select(1, 0).view_symint(tensor.sym_sizes()).detach();
    view.copy_(tensor.detach());
    sparse.push_back({name, view.set_requires_grad(true)});
  }
  return sparse;
}

}  // namespace

TEST_CASE("20 steps of our optimizers are those of torch::optim") {
  for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-12), std::pair(at::kFloat, 3e-6)}) {
    for (const Case& c : cases()) {
      CAPTURE(c.name);
      CAPTURE(toString(type));
      const auto ours = random_parameters(type), theirs = random_parameters(type);
      const auto optimizer = c.ours.make(ours);
      const auto reference = c.reference(tensors_of(theirs));
      train(*optimizer, tensors_of(ours), 0, 20);
      train(*reference, tensors_of(theirs), 0, 20);
      CHECK(difference(tensors_of(ours), tensors_of(theirs)) < tolerance);
    }
  }
}

TEST_CASE("Parameters with gaps in memory are trained like others") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const auto theirs = random_parameters(at::kDouble), ours = with_gaps(theirs);
    REQUIRE_FALSE(ours[0].tensor.is_non_overlapping_and_dense());
    const auto optimizer = c.ours.make(ours), reference = c.ours.make(theirs);
    train(*optimizer, tensors_of(ours), 0, 20);
    train(*reference, tensors_of(theirs), 0, 20);
    CHECK(difference(tensors_of(ours), tensors_of(theirs)) < 1e-12);
  }
}

TEST_CASE("bfloat16 parameters follow the float ones") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    auto ours = random_parameters(at::kBFloat16);
    auto theirs = random_parameters(at::kBFloat16);
    for (auto& one : theirs) one.tensor = one.tensor.detach().to(at::kFloat).set_requires_grad(true);
    const auto optimizer = c.ours.make(ours), reference = c.ours.make(theirs);
    for (int i = 0; i < 3; ++i) {
      set_gradients(tensors_of(ours), static_cast<std::uint64_t>(i));
      for (std::size_t k = 0; k < ours.size(); ++k)
        theirs[k].tensor.mutable_grad() = ours[k].tensor.grad().to(at::kFloat);
      optimizer->step();
      reference->step();
    }
    CHECK(difference(tensors_of(ours), tensors_of(theirs)) < 0.05);
  }
}

TEST_CASE("A step that is not skipped is a step, one that is skipped changes nothing") {
  for (const Case& c : cases()) {
    if (c.name == std::string_view("sgd dampening")) continue;
    for (const char* layout : {"dense", "gaps", "bfloat16"}) {
      CAPTURE(c.name);
      CAPTURE(layout);
      const auto base = random_parameters(layout == std::string_view("bfloat16") ? at::kBFloat16 : at::kFloat);
      const auto copy = random_parameters(base[0].tensor.scalar_type());
      const bool gaps = layout == std::string_view("gaps");
      const auto a = gaps ? with_gaps(base) : base, b = gaps ? with_gaps(copy) : copy;
      const auto ours = std::dynamic_pointer_cast<optim::NamedOptimizer>(c.ours.make(a));
      const auto plain = c.ours.make(b);
      for (const int step : {0, 1, 2}) {
        for (at::Tensor t : tensors_of(a)) t.mutable_grad() = at::full_like(t, INFINITY);
        ours->step_unless(at::full({}, 1.0f));
        set_gradients(tensors_of(a), static_cast<std::uint64_t>(step));
        ours->step_unless(at::zeros({}, at::kFloat));
        train(*plain, tensors_of(b), step, step + 1);
      }
      CHECK(equal(tensors_of(a), tensors_of(b)));
    }
  }
}

}  // namespace composer::tests::against_torch_test
