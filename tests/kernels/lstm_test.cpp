#include "composer/kernels/lstm.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <thread>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/rnn.h>

#include "composer/kernels/products.h"
#include "tests/kernels/support.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"

namespace composer::lstm_test {

using kernels::ProductRecorder, kernels::ProductScope, kernels::ProductTable;
using test::everything;

namespace {

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || (a.sizes() == b.sizes() && at::equal(a, b)));
}
bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return a.size() == b.size() && std::ranges::equal(a, b, [](const auto& x, const auto& y) { return same(x, y); });
}

struct Case {
  std::int64_t inputs, hidden, steps, samples, layers = 1;
  bool bidirectional = false, bias = true, batch_first = false;
  bool output = true, hy = true, cy = true;  // which have gradients
};

// output, hy, cy, and the gradients of input, hx, cx and the weights, in this type.
std::vector<at::Tensor> results(const Case& c, at::ScalarType type) {
  at::manual_seed(7);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(c.inputs, c.hidden)
                           .num_layers(c.layers)
                           .bidirectional(c.bidirectional)
                           .bias(c.bias)
                           .batch_first(c.batch_first));
  const std::int64_t directions = c.bidirectional ? 2 : 1;
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(type); };
  // not contiguous
  const at::Tensor input = (c.batch_first ? random({c.samples, c.inputs, c.steps}).transpose(1, 2)
                                          : random({c.inputs, c.steps, c.samples}).permute({1, 2, 0}))
                               .requires_grad_();
  const at::Tensor hx = random({directions * c.layers, c.samples, c.hidden}).requires_grad_(),
                   cx = random({directions * c.layers, c.samples, c.hidden}).requires_grad_();
  lstm->to(type);
  const auto [output, state] = lstm->forward(input, std::make_tuple(hx, cx));
  const auto& [hy, cy] = state;
  const at::Tensor of_output = random(output.sizes()), of_hy = random(hy.sizes()), of_cy = random(cy.sizes());
  at::Tensor loss = at::zeros({}, type);
  if (c.output) loss = loss + (output * of_output).sum();
  if (c.hy) loss = loss + (hy * of_hy).sum();
  if (c.cy) loss = loss + (cy * of_cy).sum();
  loss.backward();
  std::vector<at::Tensor> all = {output.detach(), hy.detach(), cy.detach(), input.grad(), hx.grad(), cx.grad()};
  for (const at::Tensor& parameter : lstm->parameters()) all.push_back(parameter.grad());
  return all;
}

std::vector<at::Tensor> own_results(const Case& c) {
  const ProductTable table = everything();
  const ProductScope scope(table);
  return results(c, at::kFloat);
}

// The operands of one layer, for the operators themselves.
struct Operands {
  std::int64_t inputs = 9, hidden = 21, steps = 5, samples = 3;
  at::Tensor input = at::randn({steps, samples, inputs}), w_ih = at::randn({4 * hidden, inputs}) / 4,
             w_hh = at::randn({4 * hidden, hidden}) / 4, b_ih = at::randn({4 * hidden}), b_hh = at::randn({4 * hidden}),
             hx = at::randn({samples, hidden}), cx = at::randn({samples, hidden});
  bool reverse = false;
  auto forward() const {
    return at::mkldnn_rnn_layer(input, w_ih, w_hh, b_ih, b_hh, hx, cx, reverse, {}, 2, hidden, 1, true, false, false,
                                true);
  }
  std::vector<at::Tensor> backward(const at::Tensor& output, const at::Tensor& hy, const at::Tensor& cy,
                                   const at::Tensor& workspace) const {
    const auto [a, b, c, d, e, f, g] =
        at::mkldnn_rnn_layer_backward(input, w_ih, w_hh, b_ih, b_hh, hx, cx, output, hy, cy, at::ones_like(output), {},
                                      {}, reverse, 2, hidden, 1, true, true, false, {}, false, workspace);
    return {a, b, c, d, e, f, g};
  }
};

}  // namespace

TEST_CASE("Our LSTM is as close to double as libtorch's, in its results and in all gradients") {
  if (!kernels::has_gemm()) return;
  const std::vector<Case> cases = {
      {.inputs = 16, .hidden = 32, .steps = 8, .samples = 4},
      {.inputs = 64, .hidden = 128, .steps = 32, .samples = 32},
      {.inputs = 1, .hidden = 1, .steps = 1, .samples = 1},
      {.inputs = 5, .hidden = 3, .steps = 1, .samples = 7},
      {.inputs = 33, .hidden = 17, .steps = 300, .samples = 1},
      {.inputs = 7, .hidden = 50, .steps = 3, .samples = 300},
      {.inputs = 40, .hidden = 270, .steps = 4, .samples = 9},
      {.inputs = 12, .hidden = 24, .steps = 70, .samples = 11, .layers = 2},
      {.inputs = 12, .hidden = 24, .steps = 70, .samples = 11, .layers = 2, .bidirectional = true},
      {.inputs = 12, .hidden = 24, .steps = 6, .samples = 11, .bidirectional = true, .bias = false},
      {.inputs = 12, .hidden = 24, .steps = 6, .samples = 11, .bias = false},
      {.inputs = 12, .hidden = 24, .steps = 6, .samples = 11, .layers = 2, .batch_first = true},
      {.inputs = 12, .hidden = 24, .steps = 6, .samples = 11, .output = true, .hy = false, .cy = false},
      {.inputs = 12, .hidden = 24, .steps = 6, .samples = 11, .output = false, .hy = true, .cy = false},
      {.inputs = 12, .hidden = 24, .steps = 6, .samples = 11, .output = false, .hy = false, .cy = true},
      {.inputs = 12, .hidden = 24, .steps = 90, .samples = 5, .bidirectional = true, .output = false, .hy = false}};
  double of_ours = 0, of_libtorch = 0;
  for (const Case& c : cases) {
    const std::vector<at::Tensor> exact = results(c, at::kDouble), library = results(c, at::kFloat),
                                  own = own_results(c);
    REQUIRE(own.size() == exact.size());
    for (std::size_t i = 0; i < exact.size(); ++i) {
      CAPTURE(c.hidden);
      CAPTURE(c.steps);
      CAPTURE(i);
      REQUIRE(own[i].sizes() == exact[i].sizes());
      const double norm = exact[i].norm().item<double>();
      const double error = (own[i].to(at::kDouble) - exact[i]).norm().item<double>();
      CHECK(error <= 3e-6 * norm);
      of_ours += error / norm;
      of_libtorch += (library[i].to(at::kDouble) - exact[i]).norm().item<double>() / norm;
    }
  }
  MESSAGE("error of ours / libtorch's: ", of_ours / of_libtorch);
  CHECK(of_ours <= 1.02 * of_libtorch);
}

TEST_CASE("A layer within a scope is that of our kernels, and libtorch's again after it") {
  if (!kernels::has_gemm()) return;
  const at::NoGradGuard no_grad;
  for (const bool reverse : {false, true}) {
    Operands o;
    o.reverse = reverse;
    const at::Tensor before = std::get<0>(o.forward()), bias = o.b_ih + o.b_hh;
    at::Tensor output = at::empty_like(before), hy = at::empty_like(o.hx), cy = at::empty_like(o.cx);
    const auto data = [](const at::Tensor& t) { return t.mutable_data_ptr<float>(); };
    kernels::lstm_forward({.steps = o.steps, .samples = o.samples, .inputs = o.inputs, .hidden = o.hidden},
                          {.input = data(o.input),
                           .w_ih = data(o.w_ih),
                           .w_hh = data(o.w_hh),
                           .hx = data(o.hx),
                           .cx = data(o.cx),
                           .reverse = reverse},
                          data(bias), {.output = data(output), .hy = data(hy), .cy = data(cy), .workspace = nullptr});
    REQUIRE(!same(output, before));
    {
      const ProductTable table = everything();
      const ProductScope scope(table);
      const auto [own, own_hy, own_cy, workspace] = o.forward();
      CHECK(same({own, own_hy, own_cy}, {output, hy, cy}));
      CHECK(!workspace.defined());
      const at::AutoGradMode with_workspace(true);
      const auto [kept, kept_hy, kept_cy, kept_workspace] = o.forward();
      CHECK(same({kept, kept_hy, kept_cy}, {output, hy, cy}));
      CHECK(kept_workspace.defined());
    }
    CHECK(same(std::get<0>(o.forward()), before));
  }
}

TEST_CASE("A backward pass is computed by the kernels that computed its forward pass, in any scope") {
  if (!kernels::has_gemm()) return;
  const Case c{.inputs = 12, .hidden = 24, .steps = 6, .samples = 11};
  const auto run = [&](bool own_forward, bool own_backward) {
    at::manual_seed(7);
    torch::nn::LSTM lstm(c.inputs, c.hidden);
    const at::Tensor input = at::randn({c.steps, c.samples, c.inputs}).requires_grad_();
    const ProductTable own = everything(), library;
    const at::Tensor loss = [&] {
      const ProductScope scope(own_forward ? own : library);
      return std::get<0>(lstm->forward(input)).sum();
    }();
    const ProductScope scope(own_backward ? own : library);
    loss.backward();
    std::vector<at::Tensor> all = {input.grad()};
    for (const at::Tensor& parameter : lstm->parameters()) all.push_back(parameter.grad());
    return all;
  };
  const auto own = run(true, true), library = run(false, false);
  REQUIRE(!same(own, library));
  CHECK(same(run(true, false), own));
  CHECK(same(run(false, true), library));
}

TEST_CASE("A backward pass on a thread without a scope, and a second one, use our workspace unchanged") {
  if (!kernels::has_gemm()) return;
  const Operands o;
  o.input.requires_grad_();
  const ProductTable table = everything();
  const auto [output, hy, cy, workspace] = [&] {
    const ProductScope scope(table);
    return o.forward();
  }();
  const at::NoGradGuard no_grad;
  const at::Tensor copy = workspace.detach();
  const std::vector<at::Tensor> first = o.backward(output, hy, cy, workspace);
  std::vector<at::Tensor> other;
  std::thread([&] { other = o.backward(output, hy, cy, copy); }).join();
  CHECK(same(first, other));
  CHECK(same(first, o.backward(output, hy, cy, workspace)));
}

TEST_CASE("libtorch rejects a copy of our workspace that has lost its mark, and we one of other operands") {
  if (!kernels::has_gemm()) return;
  Operands o;
  const ProductTable table = everything();
  const ProductScope scope(table);
  const auto [output, hy, cy, workspace] = o.forward();
  const at::NoGradGuard no_grad;
  const at::Tensor copy = at::empty(workspace.sizes()).copy_(workspace);
  CHECK(test::error_of([&] { o.backward(output, hy, cy, copy); }).find("Byte") != std::string::npos);
  o.input = o.input.slice(0, 1);
  CHECK(test::error_of([&] { o.backward(output, hy, cy, workspace); }).find("workspace is not that of") !=
        std::string::npos);
}

TEST_CASE("Second derivatives of our LSTM are libtorch's") {
  if (!kernels::has_gemm()) return;
  const auto second = [](const ProductTable& table) {
    at::manual_seed(7);
    const ProductScope scope(table);
    torch::nn::LSTM lstm(6, 10);
    const at::Tensor input = at::randn({4, 3, 6}).requires_grad_();
    const at::Tensor output = std::get<0>(lstm->forward(input));
    const at::Tensor first = torch::autograd::grad({output.pow(2).sum()}, {input}, {}, true, true)[0];
    return torch::autograd::grad({first.pow(2).sum()}, {input})[0];
  };
  const at::Tensor own = second(everything()), library = second({});
  CHECK(library.norm().item<double>() > 0);
  CHECK(at::allclose(own, library, 1e-4, 1e-5));
}

TEST_CASE("The bits of an LSTM depend neither on the number of threads nor on the instructions") {
  if (!kernels::has_gemm()) return;
  for (const Case& c : {Case{.inputs = 64, .hidden = 128, .steps = 20, .samples = 33},
                        Case{.inputs = 3, .hidden = 130, .steps = 9, .samples = 300, .bidirectional = true}}) {
    const auto with = [&](int threads, const char* instructions) {
      const test::Threads of_libtorch(threads);
      const test::Instructions used(instructions);
      const ProductTable table = everything();
      const ProductScope scope(table);
      at::manual_seed(7);
      torch::nn::LSTM lstm(torch::nn::LSTMOptions(c.inputs, c.hidden).bidirectional(c.bidirectional));
      const at::Tensor input = at::randn({c.steps, c.samples, c.inputs}).requires_grad_();
      const at::Tensor output = std::get<0>(lstm->forward(input));
      output.backward(at::sin(at::arange(output.numel(), at::kFloat)).view(output.sizes()));
      std::vector<at::Tensor> all = {output.detach(), input.grad()};
      for (const at::Tensor& parameter : lstm->parameters()) all.push_back(parameter.grad());
      return all;
    };
    const auto expected = with(1, nullptr);
    CHECK(same(with(2, nullptr), expected));
    CHECK(same(with(3, nullptr), expected));
    CHECK(same(with(1, "AVX2"), expected));
    CHECK(same(with(2, "AVX2"), expected));
  }
}

TEST_CASE("Gates are within 2.5 units in the last place of sigmoid and tanh, and saturate") {
  if (!kernels::has_gemm()) return;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> numbers = {0.0F, -0.0F, 1e-30F, -1e-30F, 200.0F, -200.0F, 1e30F, -1e30F, kInfinity, -kInfinity};
  for (int i = -22000; i <= 22000; ++i) numbers.push_back(static_cast<float>(i) * 0.004F);
  for (int i = 1; i < 2000; ++i) numbers.push_back(static_cast<float>(i) * 1e-6F);
  numbers.push_back(std::numeric_limits<float>::quiet_NaN());
  const auto count = static_cast<std::int64_t>(numbers.size());
  for (const char* instructions : {static_cast<const char*>(nullptr), "AVX2"}) {
    const test::Instructions used(instructions);
    const float ones[4] = {1, 1, 1, 1}, zeros[4] = {0, 0, 0, 0};
    const kernels::LstmSizes sizes{.steps = 1, .samples = count, .inputs = 1, .hidden = 1};
    std::vector<float> state(numbers.size(), 0), output(numbers.size()), hy(numbers.size()), cy(numbers.size()),
        workspace(static_cast<std::size_t>(kernels::lstm_workspace_floats(sizes)));
    kernels::lstm_forward(
        sizes, {.input = numbers.data(), .w_ih = ones, .w_hh = zeros, .hx = state.data(), .cx = state.data()}, nullptr,
        {.output = output.data(), .hy = hy.data(), .cy = cy.data(), .workspace = workspace.data()});
    double most = 0;
    for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
      const double x = numbers[i], sigmoid = 1 / (1 + std::exp(-x)), tanh = std::tanh(x);
      const auto units = [](float got, double exact) {
        const auto nearest = std::max(std::abs(static_cast<float>(exact)), std::numeric_limits<float>::min());
        return std::abs(got - exact) / (std::nextafter(nearest, kInfinity) - nearest);
      };
      CAPTURE(x);
      if (x > -87) most = std::max(most, units(workspace[4 * i], sigmoid));
      CHECK(std::abs(workspace[4 * i] - sigmoid) <= 2e-7 * sigmoid + 1e-37);
      most = std::max(most, units(workspace[4 * i + 2], tanh));
      if (x != 0) CHECK(std::signbit(workspace[4 * i + 2]) == std::signbit(numbers[i]));
    }
    MESSAGE("units in the last place: ", most);
    CHECK(most <= 2.5);
    CHECK(workspace[4 * 8] == 1);
    CHECK(workspace[4 * 9] == 0);
    CHECK(workspace[4 * 8 + 2] == 1);
    CHECK(workspace[4 * 9 + 2] == -1);
    CHECK(std::isnan(workspace[4 * (numbers.size() - 1)]));
    CHECK(std::isnan(workspace[4 * (numbers.size() - 1) + 2]));
    CHECK(std::isnan(hy.back()));
  }
}

TEST_CASE("What our LSTM cannot compute goes to libtorch as before") {
  const auto check = [](const char* what, const std::function<at::Tensor()>& run) {
    CAPTURE(what);
    at::manual_seed(3);
    const at::Tensor before = run();
    ProductTable table;  // not of the products that these call
    table.set(kernels::lstm_shape(4, 3, 8, 6), true);
    const ProductScope scope(table);
    const ProductRecorder recorder;
    at::manual_seed(3);
    CHECK(same(run(), before));
    for (const auto& [shape, count] : recorder.shapes()) CHECK((shape.a != kernels::Layout::LSTM));
  };
  using torch::nn::LSTMOptions;
  check("projection", [] {
    return std::get<0>(torch::nn::LSTM(LSTMOptions(6, 8).proj_size(5))->forward(at::randn({4, 3, 6})));
  });
  check("double", [] {
    torch::nn::LSTM lstm(6, 8);
    lstm->to(at::kDouble);
    return std::get<0>(lstm->forward(at::randn({4, 3, 6}, at::kDouble)));
  });
  check("GRU", [] { return std::get<0>(torch::nn::GRU(6, 8)->forward(at::randn({4, 3, 6}))); });
  check("packed", [] {
    namespace rnn = torch::nn::utils::rnn;
    const auto packed = rnn::pack_padded_sequence(at::randn({4, 3, 6}), at::tensor({4, 3, 1}, at::kLong));
    return std::get<0>(torch::nn::LSTM(6, 8)->forward_with_packed_input(packed)).data();
  });
}

TEST_CASE("A table decides about each shape of an LSTM, and a recorder notes it") {
  if (!kernels::has_gemm()) return;
  const Operands o;
  const at::NoGradGuard no_grad;
  const at::Tensor library = std::get<0>(o.forward());
  const auto shape = kernels::lstm_shape(o.steps, o.samples, o.hidden, o.inputs);
  {
    const ProductRecorder recorder;
    CHECK(same(std::get<0>(o.forward()), library));
    CHECK((recorder.shapes() == std::map<kernels::ProductShape, std::int64_t>{{shape, 1}}));
  }
  for (const bool own : {true, false}) {
    ProductTable table;
    table.set(shape, own);
    table.set(kernels::lstm_shape(1, 1, 1, 1), true);
    table = ProductTable::from_text(table.text()).value();
    CHECK(table.find(shape) == std::optional(own));
    const ProductScope scope(table);
    CHECK(same(std::get<0>(o.forward()), library) != own);
  }
  CHECK(kernels::to_string(shape) == "5x3x21x9 LL");
  for (const char* text : {"5x3x21x9 LR=1,others=0", "5x3x21x9 RL=1,others=0", "5x3x21x9 LL+=1,others=0"})
    CHECK_FALSE(ProductTable::from_text(text));
}

TEST_CASE("An LSTM reads and writes nothing beyond its matrices") {
  if (!kernels::has_gemm()) return;
  for (const bool at_end : {true, false})
    for (const char* instructions : {static_cast<const char*>(nullptr), "AVX2"})
      for (const kernels::LstmSizes s :
           {kernels::LstmSizes{.steps = 3, .samples = 2, .inputs = 5, .hidden = 7}, {1, 1, 1, 1}, {2, 17, 33, 19}}) {
        const test::Instructions used(instructions);
        std::vector<std::unique_ptr<test::Fenced>> fences;
        const auto place = [&](std::int64_t floats) {
          const auto size = static_cast<std::size_t>(floats);
          float* memory = fences.emplace_back(std::make_unique<test::Fenced>(size))->place(size, at_end);
          std::fill_n(memory, size, 0.25F);
          return memory;
        };
        const std::int64_t rows = s.steps * s.samples, states = s.samples * s.hidden;
        for (const bool reverse : {false, true}) {
          const kernels::LstmOperands operands{.input = place(rows * s.inputs),
                                               .w_ih = place(4 * s.hidden * s.inputs),
                                               .w_hh = place(4 * s.hidden * s.hidden),
                                               .hx = place(states),
                                               .cx = place(states),
                                               .reverse = reverse};
          const float* bias = place(4 * s.hidden);
          float *output = place(rows * s.hidden), *workspace = place(kernels::lstm_workspace_floats(s));
          kernels::lstm_forward(s, operands, bias,
                                {.output = output, .hy = place(states), .cy = place(states), .workspace = workspace});
          kernels::lstm_backward(s, operands, output, workspace,
                                 {.output = place(rows * s.hidden), .hy = place(states), .cy = place(states)},
                                 {.input = place(rows * s.inputs),
                                  .w_ih = place(4 * s.hidden * s.inputs),
                                  .w_hh = place(4 * s.hidden * s.hidden),
                                  .bias = place(4 * s.hidden),
                                  .hx = place(states),
                                  .cx = place(states)});
          CHECK(std::isfinite(output[0]));
        }
      }
}

}  // namespace composer::lstm_test
