#include "composer/util/own_random.h"

#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "composer/core/error.h"
#include "composer/util/random_state.h"
#include "composer/util/recompute.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::own_random_test {
namespace {

at::Tensor default_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

struct Draw {
  const char* name;
  at::Tensor (*draw)();
};

at::Tensor halves() { return at::full({8}, 0.5); }

const std::vector<Draw> kDraws = {
    {"dropout", [] { return at::dropout(halves(), 0.5, true); }},
    {"alpha_dropout", [] { return at::alpha_dropout(halves(), 0.5, true); }},
    {"feature_dropout",
     [] {
       return at::feature_dropout(at::ones({2, 3, 4}), 0.5, true);
     }},
    {"native_dropout", [] { return std::get<0>(at::native_dropout(halves(), 0.5, true)); }},
    {"rrelu", [] { return at::rrelu(-halves(), 0.1, 0.3, true); }},
    {"attention with dropout",
     [] {
       const at::Tensor x = at::ones({1, 2, 3, 4});
       return at::scaled_dot_product_attention(x, x, x, {}, 0.5);
     }},
    {"rand", [] { return at::rand({3}); }},
    {"rand_like", [] { return at::rand_like(halves()); }},
    {"randn", [] { return at::randn({3}); }},
    {"randn_like", [] { return at::randn_like(halves()); }},
    {"randint", [] { return at::randint(0, 1000, {3}); }},
    {"randint_like", [] { return at::randint_like(halves(), 1000); }},
    {"randperm", [] { return at::randperm(50); }},
    {"bernoulli", [] { return at::bernoulli(halves()); }},
    {"multinomial", [] { return at::multinomial(halves(), 4); }},
    {"normal", [] { return at::normal(halves(), halves()); }},
    {"poisson", [] { return at::poisson(halves() * 20); }},
    {"binomial", [] { return at::binomial(halves() * 40, halves()); }},
    {"uniform_", [] { return at::empty({3}).uniform_(); }},
    {"normal_", [] { return at::empty({3}).normal_(); }},
    {"random_", [] { return at::empty({3}).random_(); }},
    {"exponential_", [] { return at::empty({3}).exponential_(); }},
    {"geometric_", [] { return at::empty({8}).geometric_(0.1); }},
    {"cauchy_", [] { return at::empty({3}).cauchy_(); }},
    {"log_normal_", [] { return at::empty({3}).log_normal_(); }},
    {"initial weights", [] { return torch::nn::Linear(3, 4)->weight.detach().clone(); }},
};

TEST_CASE("Whatever draws within a RandomScope draws its owner's numbers, and none of libtorch's default generator") {
  for (const auto& [name, draw] : kDraws) {
    CAPTURE(name);
    at::manual_seed(5);
    const at::Tensor before = default_state();
    const OwnRandom own(at::kCPU, 7);
    at::Tensor drawn, then;
    {
      const RandomScope scope(own);
      drawn = draw();
      then = draw();
    }
    CHECK(default_state().equal(before));
    CHECK_FALSE(drawn.equal(then));
    at::manual_seed(7);  // the numbers are those that libtorch would give
    CHECK(draw().equal(drawn));
  }
}

TEST_CASE("Every operator that takes a generator is asked for within a scope, and no other") {
  const OwnRandom own(at::kCPU, 1);  // installs the kernels
  auto& dispatcher = c10::Dispatcher::singleton();
  int takes = 0;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op) continue;
    const bool generator = std::ranges::any_of(
        op->schema().arguments(), [](const c10::Argument& argument) { return argument.type()->str() == "Generator?"; });
    takes += generator ? 1 : 0;
    if (name.name == "aten::native_dropout" || name.name.find("_scaled_dot_product_") != std::string::npos ||
        name.name == "aten::_cudnn_rnn")
      continue;  // draw on a GPU
    INFO(name.name, '.', name.overload_name);
    CHECK(op->hasKernelForDispatchKey(c10::DispatchKey::DeferredInit) == generator);
  }
  CHECK(takes > 70);
}

TEST_CASE("A generator that is given is used, within a scope too") {
  const OwnRandom own(at::kCPU, 1);
  at::Generator given = at::detail::getDefaultCPUGenerator().clone();
  const at::Tensor before = own.state().entries().empty() ? at::Tensor() : own.find(at::kCPU)->get_state();
  const RandomScope scope(own);
  given.set_current_seed(9);
  const at::Tensor drawn = at::empty({4}).uniform_(0, 1, given);
  given.set_current_seed(9);
  CHECK(at::empty({4}).uniform_(0, 1, given).equal(drawn));
  CHECK(own.find(at::kCPU)->get_state().equal(before));
}

TEST_CASE("While the work of a GPU is recorded, this thread neither draws nor decides on the host") {
  const OwnRandom own(at::kCPU, 7);
  const RandomScope scope(own);
  {
    const RecordingScope recording(at::Device(at::kCUDA, 0));
    for (const auto& [name, draw] : kDraws) {
      CAPTURE(name);
      CHECK_THROWS_AS(draw(), Error);
    }
    CHECK_THROWS_WITH_AS(at::rand({2}),
                         "aten::uniform_ draws on the host, which a recording would repeat in every batch", Error);
    CHECK_THROWS_WITH_AS(decides_on_host("a coin is thrown"),
                         "a coin is thrown, which a recording would repeat in every batch", Error);
    at::Tensor elsewhere;
    std::thread([&] {
      const RandomScope same(own);
      decides_on_host("a coin is thrown");
      elsewhere = at::rand({2});
    }).join();
    CHECK(elsewhere.defined());
    const RecordingScope of_host(at::kCPU);  // its numbers are drawn again
    CHECK_NOTHROW(at::rand({2}));
    CHECK_THROWS_AS(decides_on_host("a coin is thrown"), Error);
  }
  CHECK_NOTHROW(at::rand({2}));
  CHECK_NOTHROW(decides_on_host("a coin is thrown"));
}

TEST_CASE("Scopes nest, and a scope of nobody draws from libtorch's default generator") {
  const OwnRandom outer(at::kCPU, 1), inner(at::kCPU, 2), nobody;
  const auto alone = [](std::uint64_t seed, int skip) {
    at::manual_seed(seed);
    for (int i = 0; i < skip; ++i) at::rand({2});
    return at::rand({2});
  };
  at::Tensor a, b, c, d;
  at::manual_seed(3);
  {
    const RandomScope first(outer);
    a = at::rand({2});
    {
      const RandomScope second(inner);
      b = at::rand({2});
    }
    c = at::rand({2});
    const RandomScope third(nobody);
    d = at::rand({2});
  }
  CHECK(a.equal(alone(1, 0)));
  CHECK(b.equal(alone(2, 0)));
  CHECK(c.equal(alone(1, 1)));
  CHECK(d.equal(alone(3, 0)));
}

TEST_CASE("Without a seed, one is drawn from libtorch's default generator, another one each time") {
  const auto drawn = [] {
    const OwnRandom own(at::kCPU, std::nullopt);
    const RandomScope scope(own);
    return at::rand({4});
  };
  at::manual_seed(5);
  const at::Tensor first = drawn(), second = drawn();
  at::manual_seed(5);
  CHECK(drawn().equal(first));
  CHECK_FALSE(first.equal(second));
}

TEST_CASE("RandomState restores the numbers of this thread's scope, and not libtorch's default ones") {
  at::manual_seed(5);
  const OwnRandom own(at::kCPU, 7);
  const RandomScope scope(own);
  const RandomState before;
  const at::Tensor drawn = at::rand({4});
  at::rand({4}, at::detail::getDefaultCPUGenerator());
  const at::Tensor default_now = default_state();
  before.restore();
  CHECK(at::rand({4}).equal(drawn));
  CHECK(default_state().equal(default_now));
}

TEST_CASE("What is saved of random numbers is what is drawn after it is restored, by another owner too") {
  const OwnRandom own(at::kCPU, 7), other(at::kCPU, 8);
  const auto draw = [](const OwnRandom& from) {
    const RandomScope scope(from);
    return at::rand({4});
  };
  draw(own);
  const StateDict saved = own.state();
  const at::Tensor next = draw(own);
  other.restore(saved);
  CHECK(draw(other).equal(next));
  const test::Warnings warnings;
  other.restore({});
  CHECK(warnings.say("no RNG state for cpu"));
}

TEST_CASE("Dropout in a recomputed segment draws the same numbers twice, of its scope") {
  const OwnRandom own(at::kCPU, 7);
  at::manual_seed(5);
  const at::Tensor before = default_state();
  const at::Tensor x = at::ones({64}).requires_grad_();
  {
    const RandomScope scope(own);
    const at::Tensor y = checkpoint([](const at::Tensor& in) { return at::dropout(in, 0.5, true); }, x);
    at::rand({3});
    y.sum().backward();
    CHECK(x.grad().equal(y.detach()));
  }
  CHECK(default_state().equal(before));
}

double trained(std::uint64_t seed) {
  const OwnRandom own(at::kCPU, seed);
  const RandomScope scope(own);
  torch::nn::Sequential net(torch::nn::Linear(20, 64), torch::nn::Dropout(0.5), torch::nn::Linear(64, 3));
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  for (int i = 0; i < 50; ++i) {
    const at::Tensor x = at::randn({16, 20}), y = at::randint(0, 3, {16});
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(net->forward(x), y).backward();
    optimizer.step();
  }
  double sum = 0;
  for (const at::Tensor& parameter : net->parameters())
    sum += parameter.detach().to(at::kDouble).abs().sum().item<double>();
  return sum;
}

TEST_CASE("Owners in several threads draw what each of them draws alone") {
  std::vector<double> alone(3), together(3);
  for (std::size_t i = 0; i < alone.size(); ++i) alone[i] = trained(i);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < alone.size(); ++i) threads.emplace_back([&, i] { together[i] = trained(i); });
  for (std::thread& thread : threads) thread.join();
  CHECK(alone == together);
  CHECK(alone[0] != alone[1]);
}

}  // namespace
}  // namespace composer::own_random_test
