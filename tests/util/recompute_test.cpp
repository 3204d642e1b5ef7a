#include "composer/util/recompute.h"

#include <tuple>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "composer/core/error.h"
#include "composer/optim/adam.h"
#include "composer/optim/sgd.h"
#include "tests/support/doctest.h"
#include "tests/support/live_bytes.h"

namespace composer::test::recompute_test {
namespace {

using Tensors = std::vector<at::Tensor>;

// Two layers with dropout, their weights the same every time.
struct Net {
  explicit Net(std::int64_t width = 8) : width_(width) {
    for (at::Tensor& w : weights) {
      w = at::sin(at::arange(width * width, at::kFloat)).view({width, width}).div_(2);
      w.requires_grad_();
    }
  }
  at::Tensor layer(const at::Tensor& x, std::size_t i) const {
    return at::dropout(at::gelu(at::linear(x, weights[i])), 0.5, true);
  }
  at::Tensor input() const { return at::cos(at::arange(4 * width_, at::kFloat)).view({4, width_}); }

  std::array<at::Tensor, 2> weights;

 private:
  std::int64_t width_;
};

// The loss and all gradients of what `forward` makes of a net and its input.
template <class F>
Tensors trained(F&& forward, bool input_has_gradient = true) {
  const Net net;
  at::manual_seed(5);
  const at::Tensor x = net.input().requires_grad_(input_has_gradient);
  const at::Tensor loss = forward(net, x).square().sum();
  const at::Tensor drawn_after = at::rand({3});
  loss.backward();
  return {loss.detach(), net.weights[0].grad(), net.weights[1].grad(), input_has_gradient ? x.grad() : at::zeros(1),
          drawn_after,   at::rand({3})};
}

void check_equal(const Tensors& expected, const Tensors& got) {
  REQUIRE(expected.size() == got.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    REQUIRE(got[i].defined());
    CHECK(at::equal(expected[i], got[i]));
  }
}

at::Tensor plain(const Net& net, const at::Tensor& x) { return net.layer(net.layer(x, 0), 1); }

TEST_CASE("Recomputed gradients, and random numbers drawn later, are equal to the bit in spite of dropout") {
  const auto each = [](const Net& net, at::Tensor x) {
    for (const std::size_t i : {0, 1}) x = checkpoint([&net, i](const at::Tensor& y) { return net.layer(y, i); }, x);
    return x;
  };
  const auto nested = [](const Net& net, const at::Tensor& x) {
    return checkpoint(
        [&net](const at::Tensor& y) {
          return net.layer(checkpoint([&net](const at::Tensor& z) { return net.layer(z, 0); }, y), 1);
        },
        x);
  };
  for (const bool input_has_gradient : {true, false}) {
    CAPTURE(input_has_gradient);
    check_equal(trained(plain, input_has_gradient), trained(each, input_has_gradient));
    check_equal(trained(plain, input_has_gradient), trained(nested, input_has_gradient));
  }
}

// bfloat16 for this scope, as the trainer does it.
struct Autocast {
  Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

TEST_CASE(
    "What was computed in bfloat16 is recomputed in bfloat16, and weights used on both sides get both gradients") {
  const auto both = [](bool recomputes) {
    return trained([recomputes](const Net& net, const at::Tensor& x) {
      const Autocast autocast;
      const auto first = [&net](const at::Tensor& y) { return net.layer(net.layer(y, 0), 0); };
      const at::Tensor y = recomputes ? checkpoint(first, x) : first(x);
      CHECK((y.scalar_type() == at::kBFloat16));
      return net.layer(y, 1) + at::linear(x, net.weights[1]);
    });
  };
  check_equal(both(false), both(true));
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST_CASE("Several inputs and outputs may be recomputed, with and without gradients") {
  const auto fn = [](const Tensors& in) -> Tensors {
    const at::Tensor scaled = in[2].defined() ? in[0] * in[2] : in[0] * 3;
    return {scaled * in[1], in[1].argmax(0), scaled.exp(), in[0], at::ones({2})};
  };
  const auto gradients = [&](bool recomputes, const at::Tensor& third) {
    const at::Tensor a = at::tensor({1., 2.}).requires_grad_(), b = at::tensor({3., 5.}).requires_grad_();
    const Tensors out = recomputes ? checkpoint(fn, Tensors{a, b, third}) : fn({a, b, third});
    REQUIRE(out.size() == 5);
    CHECK(out[1].item<std::int64_t>() == 1);
    CHECK_FALSE(out[1].requires_grad());
    (out[0].sum() + out[3].square().sum()).backward();  // out[2] is not used
    return Tensors{a.grad(), b.grad(), out[0].detach()};
  };
  for (const at::Tensor& third : {at::Tensor(), at::tensor({2., 4.})})
    check_equal(gradients(false, third), gradients(true, third));
}

TEST_CASE("A graph that is kept can be gone through twice") {
  const Net net;
  const at::Tensor x = net.input().requires_grad_();
  const at::Tensor loss = checkpoint([&](const at::Tensor& y) { return net.layer(y, 0); }, x).sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = x.grad().clone();
  loss.backward();
  CHECK(at::equal(x.grad(), once * 2));
}

TEST_CASE("Without gradients the function is called once, and nothing is kept") {
  int calls = 0;
  const auto fn = [&calls](const at::Tensor& x) {
    ++calls;
    return x * 2;
  };
  {
    const at::NoGradGuard no_grad;
    CHECK_FALSE(checkpoint(fn, at::ones({2}).requires_grad_()).requires_grad());
  }
  {
    const c10::InferenceMode inference;
    CHECK(checkpoint(fn, at::ones({2})).is_inference());
  }
  CHECK(calls == 2);
  const at::Tensor x = at::ones({2}).requires_grad_();
  checkpoint(fn, x).sum().backward();
  CHECK(calls == 4);  // with them, twice
}

TEST_CASE("Recomputing needs less memory") {
  const auto peak = [](bool recomputes) {
    const Net net(64);
    at::Tensor x = at::ones({256, 64}).requires_grad_();
    const LiveBytes live;
    for (int block = 0; block < 8; ++block) {
      const auto fn = [&net](const at::Tensor& y) { return net.layer(net.layer(y, 0), 1); };
      x = recomputes ? checkpoint(fn, x) : fn(x);
    }
    x.sum().backward();
    return live.peak();
  };
  const std::int64_t without = peak(false), with = peak(true);
  MESSAGE("peak in bytes: ", without, "; recomputed: ", with);
  CHECK(2 * with < without);
}

TEST_CASE("What recomputation cannot do is an error that says so") {
  const auto fn = [](const at::Tensor& x) { return x * x; };
  const at::Tensor x = at::ones({2}).requires_grad_();
  CHECK_THROWS_WITH_AS(torch::autograd::grad({checkpoint(fn, x).sum()}, {x}),
                       doctest::Contains("torch::autograd::grad()"), ConfigError);
  CHECK_THROWS_WITH_AS(checkpoint(fn, x).sum().backward({}, true, /*create_graph=*/true),
                       doctest::Contains("create_graph"), ConfigError);
  CHECK_THROWS_WITH_AS(checkpoint([](const Tensors&) { return Tensors(1); }, Tensors{x}), doctest::Contains("output 0"),
                       ConfigError);
  CHECK_THROWS_AS(checkpoint(Segment(), Tensors{x}), ConfigError);
  const at::Tensor changed = at::ones({2}).requires_grad_() * 1;
  const at::Tensor y = checkpoint(fn, changed).sum();
  changed.add_(1);
  CHECK_THROWS(y.backward());  // recomputing would not see what was seen
}

TEST_CASE("A weight of two segments is updated once a batch, with its whole gradient, by an optimizer in backward") {
  const auto train = [](bool in_backward, bool tied) {
    const Net net;
    at::manual_seed(5);
    const at::Tensor x = net.input();
    const auto optimizer = optim::adamw({.lr = 0.01, .step_in_backward = in_backward})
                               .make({{"w", net.weights[0]}, {"v", net.weights[1]}});
    const auto shared = [&net](const at::Tensor& input) { return net.layer(input, 0); };
    int dropped = 0;  // gradients that backward has not left to step()
    for (int i = 0; i < 10; ++i)
      optimizer->step([&] {
        optimizer->zero_grad();
        const at::Tensor hidden = net.layer(checkpoint(shared, checkpoint(shared, x)), 1);
        const at::Tensor loss = (tied ? at::linear(hidden, net.weights[0]) : hidden).square().mean();
        loss.backward();
        for (const at::Tensor& weight : net.weights) dropped += !weight.grad().defined();
        return loss;
      });
    CHECK(pending_checkpoints() == 0);
    const auto& named = dynamic_cast<const optim::NamedOptimizer&>(*optimizer);
    return std::tuple{net.weights[0].detach(), net.weights[1].detach(),
                      named.state_tensors().front().tensor.item<double>(), dropped};
  };
  for (const bool tied : {false, true}) {
    const auto [w, v, steps, none] = train(false, tied);
    const auto [our_w, our_v, our_steps, dropped] = train(true, tied);
    CHECK(our_w.equal(w));
    CHECK(our_v.equal(v));
    CHECK(steps == 10);
    CHECK(our_steps == 10);
    CHECK(none == 0);
    CHECK(dropped == 18);  // both, in all batches but the first
  }
}

TEST_CASE("A weight that a segment uses for the first time in a later batch is an error, not a second update") {
  const Net net;
  const auto optimizer = optim::sgd({.lr = 0.01, .step_in_backward = true}).make({{"w", net.weights[0]}});
  const auto shared = [&net](const at::Tensor& input) { return net.layer(input, 0); };
  const auto step = [&](bool twice) {
    optimizer->step([&] {
      optimizer->zero_grad();
      const at::Tensor once = checkpoint(shared, net.input());
      const at::Tensor loss = (twice ? checkpoint(shared, once) : once).square().mean();
      loss.backward();
      return loss;
    });
  };
  step(false);
  step(false);
  CHECK_THROWS_WITH_AS(step(true), doctest::Contains("step_in_backward already updated w in this step"), ConfigError);
  CHECK_NOTHROW(step(false));  // what the error has left is forgotten
}

}  // namespace
}  // namespace composer::test::recompute_test
