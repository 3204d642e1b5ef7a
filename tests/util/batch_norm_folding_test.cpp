#include "composer/util/batch_norm_folding.h"

#include <functional>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include "composer/models/resnet_cifar.h"
#include "tests/support/doctest.h"

namespace composer::batch_norm_folding_test {
namespace {

namespace nn = torch::nn;

// Running statistics, scales and shifts as training leaves them: all different.
template <class Norm>
Norm trained(Norm norm) {
  const at::NoGradGuard no_grad;
  norm->running_mean.normal_();
  norm->running_var.uniform_(0.2, 3);
  if (norm->weight.defined()) norm->weight.uniform_(-2, 2);
  if (norm->bias.defined()) norm->bias.normal_();
  norm->eval();
  return norm;
}

// What `forward` makes as it is, and with what could be folded folded.
struct Both {
  at::Tensor plain, folded;
  std::size_t pairs = 0;
  bool ran = false;
};
template <class F>
Both both(F&& forward) {
  const at::NoGradGuard no_grad;
  Both made;
  BatchNormFolding folding;
  folding.watch([&] { made.plain = forward(); });
  made.pairs = folding.size();
  made.ran = folding.fold().run([&] { made.folded = forward(); });
  return made;
}

void check_equal(const Both& made, std::size_t pairs) {
  CHECK(made.pairs == pairs);
  CHECK(made.ran);
  CHECK(at::allclose(made.folded, made.plain, 1e-5, 1e-5));
  CHECK(made.folded.equal(made.plain) == (pairs == 0));
}

TEST_CASE("a batch norm is not taken for that of a later layer whose output lies where its input was") {
  const at::NoGradGuard no_grad;
  nn::BatchNorm2d norm = trained(nn::BatchNorm2d(8));
  nn::Conv2d layer(nn::Conv2dOptions(8, 16, 1));
  const at::Tensor x = at::randn({1, 8, 2, 2});
  std::vector<at::Tensor> kept;  // what is allocated between, so that addresses come together in one way or another
  for (int i = 0; i < 100; ++i) {
    check_equal(both([&] {
                  at::Tensor normed = norm(x + 1);
                  kept.resize(static_cast<std::size_t>(i) % 7);
                  for (at::Tensor& tensor : kept) tensor = at::empty({});
                  kept.clear();
                  return at::relu(layer(normed));
                }),
                0);
  }
}

TEST_CASE("batch norms fold into convolutions of every kind, to rounding") {
  at::manual_seed(1);
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).bias(false)), trained(nn::BatchNorm2d(8)),
                     nn::Conv2d(nn::Conv2dOptions(8, 16, 3).groups(4).stride(2)), trained(nn::BatchNorm2d(16)),
                     nn::Conv2d(nn::Conv2dOptions(16, 4, 3).padding(torch::kSame)),
                     trained(nn::BatchNorm2d(nn::BatchNorm2dOptions(4).affine(false))));
  const at::Tensor x = at::randn({5, 3, 9, 9});
  check_equal(both([&] { return net->forward(x); }), 3);
  nn::Sequential line(nn::Conv1d(3, 6, 2), trained(nn::BatchNorm1d(6)), nn::Conv1d(6, 2, 3),
                      trained(nn::BatchNorm1d(2)));
  check_equal(both([&] { return line->forward(x.view({5, 3, 81})); }), 2);
  nn::Sequential volume(nn::Conv3d(3, 2, 1), trained(nn::BatchNorm3d(2)));
  check_equal(both([&] { return volume->forward(x.unsqueeze(-1)); }), 1);
}

TEST_CASE("a whole ResNet-20 is folded, also in channels-last layout, in inference mode and for other batch sizes") {
  at::manual_seed(2);
  const auto net = models::resnet_cifar({.in_channels = 1});
  {
    const at::NoGradGuard no_grad;
    for (const auto& item : net->named_buffers()) {
      if (item.key().ends_with("running_mean")) item.value().normal_(0, 0.1);
      if (item.key().ends_with("running_var")) item.value().uniform_(0.5, 2);
    }
    for (at::Tensor& p : net->parameters())
      if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
  }
  net->eval();
  BatchNormFolding folding;
  const auto forward = [&](const at::Tensor& x) {
    Batch batch;
    batch.set("input", x);
    return net->forward(batch).only();
  };
  const c10::InferenceMode inference;
  folding.watch([&] { forward(at::randn({2, 1, 28, 28})); });
  CHECK(folding.size() == 21);
  auto folded = folding.fold();
  for (const std::int64_t samples : {1, 3}) {
    const at::Tensor x = at::randn({samples, 1, 28, 28});
    at::Tensor made;
    CHECK(folded.run([&] { made = forward(x); }));
    const at::Tensor plain = forward(x);
    CHECK(at::allclose(made, plain, 1e-5, 1e-5));
    CHECK_FALSE(made.equal(plain));  // something was folded
  }
}

TEST_CASE(
    "what cannot be folded is left alone: training, another use of the output, a layer used twice, no statistics") {
  at::manual_seed(3);
  nn::Conv2d conv(nn::Conv2dOptions(2, 2, 1));
  nn::BatchNorm2d norm = trained(nn::BatchNorm2d(2));
  nn::BatchNorm2d other = trained(nn::BatchNorm2d(2));
  const at::Tensor x = at::randn({2, 2, 4, 4});
  at::Tensor kept;
  check_equal(both([&] {
                const at::Tensor y = conv(x);
                return norm(y) + y;
              }),
              0);
  check_equal(both([&] { return norm(conv(x)) + other(conv(x)); }), 0);
  check_equal(both([&] { return norm(conv(x).relu_()); }), 0);
  check_equal(both([&] { return norm(conv(norm(x))); }), 0);
  check_equal(both([&] {
                kept = conv(x);
                return norm(kept);
              }),
              0);
  check_equal(both([&] { return at::cat({conv(x), x}).narrow(0, 0, 2) + 0 * norm(x); }), 0);
  nn::BatchNorm2d without(nn::BatchNorm2dOptions(2).track_running_stats(false));
  without->eval();
  check_equal(both([&] { return without(conv(x)); }), 0);
  check_equal(both([&] { return norm(conv(x)); }), 1);
}

TEST_CASE("a forward pass that takes another way than the one that was watched is told") {
  at::manual_seed(4);
  nn::Conv2d conv(nn::Conv2dOptions(2, 2, 1));
  nn::BatchNorm2d norm = trained(nn::BatchNorm2d(2));
  const at::Tensor x = at::randn({2, 2, 4, 4});
  const at::NoGradGuard no_grad;
  BatchNormFolding folding;
  folding.watch([&] { norm(conv(x)); });
  REQUIRE(folding.size() == 1);
  auto folded = folding.fold();
  CHECK(folded.run([&] { norm(conv(x)); }));
  CHECK_FALSE(folded.run([&] { conv(x).relu(); }));
  CHECK_FALSE(folded.run([&] { norm(conv(x).relu()); }));
  CHECK_FALSE(folded.run([&] { norm(conv(conv(x))); }));
  CHECK(folded.run([&] { norm(x); }));
  CHECK(folded.run([&] { norm(conv(x)); }));
}

TEST_CASE("folded copies follow the weights only when they are made anew, and nothing is in force outside of run") {
  at::manual_seed(5);
  nn::Conv2d conv(nn::Conv2dOptions(2, 2, 1));
  nn::BatchNorm2d norm = trained(nn::BatchNorm2d(2));
  const at::Tensor x = at::randn({2, 2, 4, 4});
  const at::NoGradGuard no_grad;
  BatchNormFolding folding;
  folding.watch([&] { norm(conv(x)); });
  auto before = folding.fold();
  const at::Tensor plain_before = norm(conv(x));
  conv->weight.mul_(2);
  norm->running_mean.add_(1);
  auto after = folding.fold();
  const at::Tensor plain_after = norm(conv(x));
  at::Tensor made;
  before.run([&] { made = norm(conv(x)); });
  CHECK(at::allclose(made, plain_before, 1e-5, 1e-6));
  after.run([&] { made = norm(conv(x)); });
  CHECK(at::allclose(made, plain_after, 1e-5, 1e-6));
  CHECK(norm(conv(x)).equal(plain_after));
}

TEST_CASE("a folded pass in which anything besides its batch norm uses a layer's output is told") {
  at::manual_seed(7);
  nn::Conv2d conv(nn::Conv2dOptions(2, 2, 1));
  nn::BatchNorm2d norm = trained(nn::BatchNorm2d(2));
  const at::Tensor x = at::randn({2, 2, 4, 4});
  at::Tensor kept;
  const c10::InferenceMode inference;
  BatchNormFolding folding;
  folding.watch([&] { norm(conv(x)); });
  REQUIRE(folding.size() == 1);
  auto folded = folding.fold();
  const std::pair<const char*, std::function<void(const at::Tensor& h)>> passes[] = {
      {"added to the batch norm's output", [&](const at::Tensor& h) { norm(h).add_(h); }},
      {"reduced after the batch norm", [&](const at::Tensor& h) { norm(h), h.abs().mean(); }},
      {"reduced before the batch norm", [&](const at::Tensor& h) { h.mean(), norm(h); }},
      {"one of a list",
       [&](const at::Tensor& h) {
         at::cat({norm(h), h});
       }},
      {"in a view", [&](const at::Tensor& h) { norm(h), h.view({-1}); }},
      {"normalised twice", [&](const at::Tensor& h) { norm(h), norm(h); }},
      {"written by out=",
       [&](const at::Tensor& h) {
         at::Tensor to = at::empty_like(x), y = norm(h);
         at::mul_out(to, h, y);
       }},
      {"kept", [&](const at::Tensor& h) { kept = h, norm(h); }},
  };
  for (const auto& [how, pass] : passes) {
    CAPTURE(how);
    kept = at::Tensor();
    CHECK_FALSE(folded.run([&] { pass(conv(x)); }));
    CHECK(folded.run([&] { norm(conv(x)).relu_().mean(); }));
  }
  at::Tensor held;
  CHECK(folded.run([&] {
    const at::Tensor h = conv(x);  // lives on, unused
    held = norm(h);
    held.mul_(2);
  }));
  CHECK(at::allclose(held, norm(conv(x)).mul(2), 1e-5, 1e-6));
}

TEST_CASE(
    "tensors of a layer or a batch norm that were replaced after the watched pass are not taken for the old ones") {
  at::manual_seed(8);
  const at::Tensor x = at::randn({2, 2, 4, 4});
  const std::pair<const char*, std::function<void(nn::Conv2d&, nn::BatchNorm2d&)>> changes[] = {
      {"weight",
       [](nn::Conv2d& conv, nn::BatchNorm2d&) {
         conv->weight = at::randn({2, 2, 1, 1});
       }},
      {"bias", [](nn::Conv2d& conv, nn::BatchNorm2d&) { conv->bias = at::randn({2}); }},
      {"no bias", [](nn::Conv2d& conv, nn::BatchNorm2d&) { conv->bias = at::Tensor(); }},
      {"gamma", [](nn::Conv2d&, nn::BatchNorm2d& norm) { norm->weight = at::randn({2}); }},
      {"beta", [](nn::Conv2d&, nn::BatchNorm2d& norm) { norm->bias = at::randn({2}); }},
      {"mean", [](nn::Conv2d&, nn::BatchNorm2d& norm) { norm->running_mean = at::randn({2}); }},
      {"variance", [](nn::Conv2d&, nn::BatchNorm2d& norm) { norm->running_var = at::rand({2}).add(1); }},
      {"eps", [](nn::Conv2d&, nn::BatchNorm2d& norm) { norm->options.eps(0.5); }},
  };
  for (const auto& [what, change] : changes) {
    CAPTURE(what);
    const at::NoGradGuard no_grad;
    nn::Conv2d conv(nn::Conv2dOptions(2, 2, 1));
    nn::BatchNorm2d norm = trained(nn::BatchNorm2d(2));
    BatchNormFolding folding;
    folding.watch([&] { norm(conv(x)); });
    change(conv, norm);
    auto folded = folding.fold();
    at::Tensor made;
    const bool told = !folded.run([&] { made = norm(conv(x)); });
    CHECK((told || at::allclose(made, norm(conv(x)), 1e-5, 1e-6)));
    CHECK(folded.stale());
    folding.watch([&] { norm(conv(x)); });
    auto again = folding.fold();
    CHECK(again.run([&] { made = norm(conv(x)); }));
    CHECK(at::allclose(made, norm(conv(x)), 1e-5, 1e-6));
    CHECK_FALSE(again.stale());
  }
}

TEST_CASE("an error of the forward pass ends watching and folding as it should") {
  at::manual_seed(6);
  nn::Conv2d conv(nn::Conv2dOptions(2, 2, 1));
  nn::BatchNorm2d norm = trained(nn::BatchNorm2d(2));
  const at::Tensor x = at::randn({2, 2, 4, 4});
  const at::NoGradGuard no_grad;
  BatchNormFolding folding;
  CHECK_THROWS(folding.watch([&] { conv(at::randn({1, 7, 4, 4})); }));
  folding.watch([&] { norm(conv(x)); });
  auto folded = folding.fold();
  CHECK_THROWS(folded.run([&] { conv(at::randn({1, 7, 4, 4})); }));
  at::Tensor made;
  CHECK(folded.run([&] { made = norm(conv(x)); }));
  CHECK(at::allclose(made, norm(conv(x)), 1e-5, 1e-6));
}

}  // namespace
}  // namespace composer::batch_norm_folding_test
