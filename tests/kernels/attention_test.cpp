#include "composer/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "composer/core/error.h"
#include "composer/kernels/products.h"
#include "tests/kernels/support.h"
#include "tests/support/doctest.h"

namespace composer::attention_test {

using kernels::ProductRecorder, kernels::ProductScope, kernels::ProductTable;
using test::everything;

namespace {

struct Case {
  std::int64_t batch = 2, heads = 3, queries = 5, keys = 5, depth = 8;
  bool causal = false;
  std::optional<double> scale = {};
  // COLUMNS: of the gradient of the output; libtorch does not use its fused operator for such operands
  enum { SIDE_BY_SIDE, CONTIGUOUS, COLUMNS } layout = SIDE_BY_SIDE;
  float size = 1;
};

struct Operands {
  at::Tensor q, k, v, of_output;
};

Operands operands(const Case& c, at::ScalarType type) {
  at::manual_seed(7);
  const auto random = [&](std::int64_t rows) {
    const at::Tensor heads = (at::randn({c.batch, rows, c.heads, c.depth}) * c.size).transpose(1, 2);
    return (c.layout == Case::CONTIGUOUS ? heads.contiguous() : heads).to(type);
  };
  const auto weight = [&](std::int64_t rows) { return random(rows).requires_grad_(); };
  Operands made{.q = weight(c.queries), .k = weight(c.keys), .v = weight(c.keys), .of_output = random(c.queries)};
  if (c.layout == Case::COLUMNS) made.of_output = made.of_output.transpose(2, 3).contiguous().transpose(2, 3);
  return made;
}

// the output, and the gradients of q, k and v
std::vector<at::Tensor> with_gradients(const Operands& from, const at::Tensor& output) {
  output.backward(from.of_output);
  return {output.detach(), from.q.grad(), from.k.grad(), from.v.grad()};
}

std::vector<at::Tensor> results(const Case& c, at::ScalarType type) {
  const Operands from = operands(c, type);
  return with_gradients(from, at::scaled_dot_product_attention(from.q, from.k, from.v, {}, 0, c.causal, c.scale));
}

// In double. libtorch's operator gives NaN for causal scores that are scaled by 0 or less.
std::vector<at::Tensor> exact_results(const Case& c) {
  const Operands from = operands(c, at::kDouble);
  at::Tensor scores = from.q.matmul(from.k.transpose(2, 3)) * c.scale.value_or(1 / std::sqrt(c.depth));
  if (c.causal)
    scores =
        scores.masked_fill(at::ones({c.queries, c.keys}, at::kBool).triu(1), -std::numeric_limits<double>::infinity());
  return with_gradients(from, scores.softmax(-1).matmul(from.v));
}

std::vector<at::Tensor> own_results(const Case& c) {
  const ProductTable table = everything();
  const ProductScope scope(table);
  return results(c, at::kFloat);
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return at::equal(x, y); });
}

std::vector<Case> cases() {
  std::vector<Case> all = {
      {.queries = 1, .keys = 1, .depth = 1},
      {.queries = 1, .keys = 37, .depth = 33},
      {.queries = 37, .keys = 1},
      {.queries = 128, .keys = 128, .depth = 32},
      {.batch = 1, .heads = 1, .queries = 300, .keys = 300, .depth = 64},
      {.batch = 1, .heads = 2, .queries = 70, .keys = 2100, .depth = 16},
      {.queries = 130, .keys = 40, .depth = 256},
      {.queries = 40, .keys = 130, .depth = 17},
      {.queries = 57, .keys = 57, .scale = 0.7},
      {.queries = 57, .keys = 57, .scale = -0.7},
      {.queries = 57, .keys = 57, .scale = 0},
      {.queries = 57, .keys = 57, .layout = Case::CONTIGUOUS},
      {.queries = 57, .keys = 57, .layout = Case::COLUMNS},
      {.queries = 57, .keys = 57, .size = 30},  // scores of some thousand
  };
  for (std::size_t i = 0, plain = all.size(); i < plain; ++i) {
    all.push_back(all[i]);
    all.back().causal = true;
  }
  return all;
}

std::string name(const Case& c) {
  return join(c.batch, 'x', c.heads, 'x', c.queries, 'x', c.keys, 'x', c.depth, c.causal ? " causal" : "", " scale ",
              c.scale.value_or(1), " layout ", static_cast<int>(c.layout), " size ", c.size);
}

}  // namespace

TEST_CASE("Attention and its gradients are as exact as libtorch's") {
  for (const char* instructions : {"best", "AVX2"}) {
    const test::Instructions used(std::string_view(instructions) == "best" ? nullptr : instructions);
    double ours_sum = 0, theirs_sum = 0;
    for (const Case& c : cases()) {
      CAPTURE(name(c));
      const auto exact = exact_results(c), theirs = results(c, at::kFloat), ours = own_results(c);
      for (std::size_t i = 0; i < exact.size(); ++i) {
        CAPTURE(i);
        const auto error = [&](const at::Tensor& tensor) {
          return ((tensor.to(at::kDouble) - exact[i]).norm() / (exact[i].norm() + 1)).item<double>();
        };
        const double of_ours = error(ours[i]), of_theirs = error(theirs[i]);
        CHECK(ours[i].sizes() == theirs[i].sizes());
        CHECK(ours[i].strides() == theirs[i].strides());
        if (c.causal && c.scale.value_or(1) <= 0) {
          CHECK(of_ours < 1e-6);
          continue;
        }
        CHECK(of_ours < 1.5 * of_theirs + 1e-6);
        ours_sum += of_ours;
        theirs_sum += of_theirs;
      }
    }
    MESSAGE(std::string(instructions) << ": error " << ours_sum / theirs_sum << " of libtorch's");
    CHECK(ours_sum < 1.1 * theirs_sum);
  }
}

TEST_CASE("Attention has the same bits with any number of threads, and with AVX2") {
  for (const Case& c : cases()) {
    CAPTURE(name(c));
    const auto expected = own_results(c);
    for (const int threads : {1, 3}) {
      const test::Threads used(threads);
      CHECK(same(own_results(c), expected));
    }
    const test::Instructions avx2("AVX2");
    CHECK(same(own_results(c), expected));
  }
}

TEST_CASE("Attention is noted once a pass, and computed as the table says") {
  const Case c{.queries = 20, .keys = 20, .causal = true};
  const auto shape = kernels::attention_shape(6, 20, 20, 8, true);
  {
    const ProductRecorder recorder;
    results(c, at::kFloat);
    REQUIRE(recorder.shapes().contains(shape));
    CHECK(recorder.shapes().at(shape) == 1);
  }
  const auto theirs = results(c, at::kFloat), ours = own_results(c);
  REQUIRE_FALSE(same(theirs, ours));
  for (const bool own : {true, false}) {
    ProductTable table;
    table.set(shape, own);
    table.set(kernels::attention_shape(6, 20, 20, 8, false), !own);
    const ProductScope scope(table);
    CHECK(same(results(c, at::kFloat), own ? ours : theirs));
  }
}

TEST_CASE("Attention that is not for our kernels is libtorch's, bit by bit") {
  const ProductTable none, all = everything();
  const auto q = at::randn({2, 3, 9, 8}), k = at::randn({2, 3, 7, 8}), v = at::randn({2, 3, 7, 8});
  const auto mask = at::randn({9, 7});
  const std::vector<std::function<at::Tensor()>> programs = {
      [&] { return at::scaled_dot_product_attention(q, k, v, mask); },
      [&] { return at::scaled_dot_product_attention(q, k, v, mask > 0); },
      [&] { return at::scaled_dot_product_attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble)); },
      [&] { return at::scaled_dot_product_attention(q.to(at::kBFloat16), k.to(at::kBFloat16), v.to(at::kBFloat16)); },
      [&] { return at::scaled_dot_product_attention(q, k.narrow(2, 0, 0), v.narrow(2, 0, 0)); },
      [&] { return at::scaled_dot_product_attention(q.narrow(2, 0, 0), k, v); },
      [&] {
        const auto deep = [](const at::Tensor& one) { return one.repeat({1, 1, 1, 40}); };
        return at::scaled_dot_product_attention(deep(q), deep(k), deep(v));
      },
  };
  for (std::size_t i = 0; i < programs.size(); ++i) {
    CAPTURE(i);
    const auto computed = [&](const ProductTable& table) {
      // What is made of products of matrices is not what is tested here.
      ProductTable attention;
      if (table.others())
        for (const std::int64_t depth : {8, 320})
          for (const std::int64_t queries : {9, 0})
            attention.set(kernels::attention_shape(6, queries, 7, depth, false), true);
      const ProductScope scope(attention);
      return programs[i]();
    };
    const at::Tensor expected = computed(none), got = computed(all);
    CHECK((got.scalar_type() == expected.scalar_type()));
    CHECK(at::allclose(got, expected, 0, 0, /*equal_nan=*/true));
  }
}

TEST_CASE("A NaN or an infinity in attention reaches what it reaches in libtorch's") {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const int where : {0, 1, 2}) {
      CAPTURE(value);
      CAPTURE(where);
      at::Tensor tensors[3] = {at::randn({1, 2, 20, 8}), at::randn({1, 2, 20, 8}), at::randn({1, 2, 20, 8})};
      tensors[where].index_put_({0, 1, 11, 3}, at::scalar_tensor(value));
      const auto output = [&](const ProductTable& table) {
        const ProductScope scope(table);
        return at::scaled_dot_product_attention(tensors[0], tensors[1], tensors[2]);
      };
      CHECK(output(everything()).isnan().equal(output(ProductTable()).isnan()));
    }
}

TEST_CASE("A query whose scores are all -inf sees no key: its output and gradients are 0, as in libtorch's") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const char* instructions : {"best", "AVX2"})
    for (const bool causal : {false, true})
      for (const std::int64_t rows : {3, 60, 2100}) {
        const test::Instructions used(std::string_view(instructions) == "best" ? nullptr : instructions);
        CAPTURE(instructions);
        CAPTURE(causal);
        CAPTURE(rows);
        at::manual_seed(3);
        // Products of large numbers overflow, so that gradients stay finite.
        const auto large = at::full({1, 2, rows, 8}, -1e30F), v = at::randn({1, 2, rows, 8}),
                   d = at::randn({1, 2, rows, 8});
        at::Tensor q = at::randn({1, 2, rows, 8}) * 1e-30F;
        q.slice(2, 1, rows, 2).fill_(1e30F);
        const auto computed = [&](const ProductTable& table) {
          const ProductScope scope(table);
          auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(q, large, v, 0, causal);
          auto [d_q, d_k, d_v] =
              at::_scaled_dot_product_flash_attention_for_cpu_backward(d, q, large, v, output, logsumexp, 0, causal);
          return std::vector<at::Tensor>{output, logsumexp, d_q, d_k, d_v};
        };
        const auto ours = computed(everything()), theirs = computed(ProductTable());
        for (const std::size_t i : {0, 1, 3, 4}) {  // the gradients of other queries are what rounding leaves of 1e30
          CAPTURE(i);
          CHECK(at::allclose(ours[i], theirs[i], 1e-4, 1e-5, /*equal_nan=*/true));
        }
        CHECK(ours[0].slice(2, 1, rows, 2).eq(0).all().item<bool>());
        CHECK(ours[2].slice(2, 1, rows, 2).eq(0).all().item<bool>());
        const at::Tensor k = at::full_like(v, -kInf);
        const ProductTable table = everything();
        const ProductScope scope(table);
        CHECK(at::scaled_dot_product_attention(at::ones_like(v), k, v, {}, 0, causal).eq(0).all().item<bool>());
        k[0][0][rows / 2][0] = std::numeric_limits<float>::quiet_NaN();
        CHECK(at::scaled_dot_product_attention(at::ones_like(v), k, v, {}, 0, false)[0][0].isnan().all().item<bool>());
      }
}

TEST_CASE("The backward pass of attention takes the results of libtorch's forward pass") {
  const Case c{.queries = 20, .keys = 20, .causal = true};
  const auto expected = results(c, at::kFloat);
  at::manual_seed(7);
  const auto random = [&] { return at::randn({c.batch, c.queries, c.heads, c.depth}).transpose(1, 2); };
  const at::Tensor q = random().requires_grad_(), k = random().requires_grad_(), v = random().requires_grad_();
  const at::Tensor of_output = random();
  const at::Tensor output = at::scaled_dot_product_attention(q, k, v, {}, 0, c.causal);
  const ProductTable table = everything();
  const ProductScope scope(table);
  (output * of_output).sum().backward();
  CHECK(at::allclose(q.grad(), expected[1], 1e-4, 1e-5));
  CHECK(at::allclose(k.grad(), expected[2], 1e-4, 1e-5));
  CHECK(at::allclose(v.grad(), expected[3], 1e-4, 1e-5));
}

TEST_CASE("Attention reads and writes nothing beyond its operands") {
  const std::int64_t rows = 19, depth = 5;
  const auto floats = static_cast<std::size_t>(rows * depth);
  std::vector<std::unique_ptr<test::Fenced>> fences;
  for (int i = 0; i < 9; ++i) fences.push_back(std::make_unique<test::Fenced>(floats));
  for (const bool at_end : {true, false}) {
    const auto place = [&](std::size_t i, std::size_t count) { return fences[i]->place(count, at_end); };
    const auto read = [&](std::size_t i) {
      float* data = place(i, floats);
      std::fill_n(data, floats, 0.1F);
      return kernels::ConstHeadRows{data, 0, 0, depth};
    };
    const auto written = [&](std::size_t i) { return kernels::HeadRows{place(i, floats), 0, 0, depth}; };
    const kernels::Attention attention{.batch = 1,
                                       .heads = 1,
                                       .queries = rows,
                                       .keys = rows,
                                       .depth = depth,
                                       .causal = true,
                                       .scale = 1,
                                       .q = read(0),
                                       .k = read(1),
                                       .v = read(2)};
    const kernels::HeadRows output = written(3), logsumexp{place(4, rows), 0, 0, 1};
    kernels::attention_forward(attention, output, logsumexp);
    kernels::attention_backward(attention, {output.data, 0, 0, depth}, {logsumexp.data, 0, 0, 1}, read(5),
                                {.q = written(6), .k = written(7), .v = written(8)});
    CHECK(output.data[0] == doctest::Approx(0.1));
  }
}

}  // namespace composer::attention_test
