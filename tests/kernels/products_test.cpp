#include "composer/kernels/products.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/kernels/support.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/warnings.h"

namespace composer::products_test {

using kernels::Layout, kernels::ProductRecorder, kernels::ProductScope, kernels::ProductShape, kernels::ProductTable;
using test::everything;

namespace {

// Large enough that our sum and that of libtorch's library differ somewhere.
at::Tensor left() { return at::randn({64, 1000}); }
at::Tensor right() { return at::randn({1000, 64}); }

at::Tensor own_mm(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor c = at::empty({a.size(0), b.size(1)});
  kernels::gemm({.m = a.size(0),
                 .n = b.size(1),
                 .k = a.size(1),
                 .a = {a.const_data_ptr<float>(), a.stride(0), a.stride(1)},
                 .b = {b.const_data_ptr<float>(), b.stride(0), b.stride(1)},
                 .c = c.mutable_data_ptr<float>(),
                 .c_row = b.size(1)});
  return c;
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.layout() != at::kStrided || b.layout() != at::kStrided) return same(a.to_dense(), b.to_dense());
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type() || a.device() != b.device()) return false;
  if (a.is_meta()) return true;
  const auto bytes = [](const at::Tensor& t) {
    const at::Tensor plain = t.resolve_conj().resolve_neg().contiguous();
    return std::string_view(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  };
  const at::Tensor x = a.resolve_conj().resolve_neg().contiguous(), y = b.resolve_conj().resolve_neg().contiguous();
  return bytes(x) == bytes(y);
}

// The operators that run meanwhile, in order.
std::vector<std::string> operators(const std::function<void()>& run) {
  static std::vector<std::string> names;
  names.clear();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& f) -> std::unique_ptr<at::ObserverContext> {
        names.emplace_back(f.name());
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  run();
  at::removeCallback(handle);
  return names;
}

}  // namespace

TEST_CASE("A product within a scope is that of our kernels, and libtorch's again after it") {
  if (!kernels::has_gemm()) return;
  const at::Tensor a = left(), b = right(), before = at::mm(a, b), own = own_mm(a, b);
  REQUIRE(!same(before, own));
  const ProductTable table = everything();
  {
    const ProductScope scope(table);
    CHECK(same(at::mm(a, b), own));
    CHECK(same(at::bmm(a.unsqueeze(0), b.unsqueeze(0))[0], own));
    CHECK(same(at::addmm(at::zeros({64}), a, b), own));
    at::Tensor out = at::empty({64, 64}), sum = at::zeros({64, 64});
    CHECK(same(at::mm_out(out, a, b), own));
    CHECK(same(sum.addmm_(a, b), own));
    CHECK(same(at::linear(a, b.t().contiguous()), own));
  }
  CHECK(same(at::mm(a, b), before));
}

TEST_CASE("Operators other than products run the same kernels within a scope") {
  const auto work = [] {
    const at::Tensor x = at::randn({4, 8, 6}).requires_grad_(), weight = at::randn({6, 6}).requires_grad_();
    const at::Tensor scale = at::ones({6}).requires_grad_(), shift = at::zeros({6}).requires_grad_();
    at::Tensor y = at::layer_norm(at::matmul(x, weight), {6}, scale, shift);
    y = at::group_norm(at::mish(at::silu(y)) + x * 2, 4);
    y = at::stack({at::log_softmax(at::gelu(y), -1), y}).cumsum(0).clamp(-1, 1);
    y.pow(2).sum().backward();
  };
  work();  // what happens once
  const std::vector<std::string> before = operators(work);
  ProductTable table;  // not of these products, which call others when they are libtorch's
  table.set({1, 7, 7, 7, Layout::ROWS, Layout::ROWS, false}, true);
  const ProductScope scope(table);
  const std::vector<std::string> within = operators(work);
  CHECK(within.size() == before.size());
  CHECK((within == before));
}

TEST_CASE("Only shapes of the table go to our kernels, and the innermost scope decides") {
  if (!kernels::has_gemm()) return;
  const at::Tensor a = left(), b = right(), theirs = at::mm(a, b), own = own_mm(a, b);
  ProductTable one, other, none;
  one.set({1, 64, 64, 1000, Layout::ROWS, Layout::ROWS, false}, true);
  other.set({1, 64, 64, 1000, Layout::ROWS, Layout::COLUMNS, false}, true);
  const ProductScope scope(one);
  CHECK(same(at::mm(a, b), own));
  {
    const ProductScope inner(other);
    CHECK(same(at::mm(a, b), theirs));
    CHECK(same(at::mm(a, b.t().contiguous().t()), own));
    {
      const ProductScope innermost(none);
      CHECK(same(at::mm(a, b), theirs));
      none.set_others(true);
      ProductScope::table_has_changed();
      CHECK(same(at::mm(a, b), own));
    }
    CHECK(same(at::mm(a, b), theirs));
  }
  CHECK(same(at::mm(a, b), own));
}

TEST_CASE("A scope of one thread leaves the products of another alone") {
  if (!kernels::has_gemm()) return;
  const at::Tensor a = left(), b = right(), theirs = at::mm(a, b), own = own_mm(a, b);
  const ProductTable table = everything();
  const auto all_are = [&](const at::Tensor& expected, bool scoped) {
    bool all = true;
    for (int i = 0; i < 50; ++i) {
      std::optional<ProductScope> scope;
      if (scoped) scope.emplace(table);
      all = all && same(at::mm(a, b), expected);
    }
    return all;
  };
  bool first = false, second = false;
  std::thread with([&] { first = all_are(own, true); }), without([&] { second = all_are(theirs, false); });
  with.join();
  without.join();
  CHECK(first);
  CHECK(second);
}

TEST_CASE("A recorder counts shapes and changes no result") {
  if (!kernels::has_gemm()) return;
  const at::Tensor a = left(), b = right(), theirs = at::mm(a, b);
  const ProductRecorder recorder;
  CHECK(same(at::mm(a, b), theirs));
  at::mm(a, b);
  at::addmm(at::zeros({64}), a, b.t().contiguous().t());
  at::bmm(at::randn({2, 3, 4}).transpose(1, 2), at::randn({2, 3, 5}));
  CHECK((recorder.shapes() ==
         std::map<ProductShape, std::int64_t>{{{1, 64, 64, 1000, Layout::ROWS, Layout::ROWS, false}, 2},
                                              {{1, 64, 64, 1000, Layout::ROWS, Layout::COLUMNS, true}, 1},
                                              {{2, 4, 5, 3, Layout::COLUMNS, Layout::ROWS, false}, 1}}));
}

TEST_CASE("What is not for our kernels gives the result or the error that it gives without a scope") {
  at::manual_seed(1);
  const at::Tensor a = at::randn({5, 6}), b = at::randn({6, 7}), batch = at::randn({3, 6, 7});
  const at::Tensor wide = at::randn({40, 300}), tall = at::randn({300, 40});
  const at::Tensor large = at::mm(tall, wide).to(at::kBFloat16);
  const auto typed = [&](at::ScalarType type) {
    return [&, type] { return at::mm(wide.mul(3).to(type), tall.mul(3).to(type)); };
  };
  struct Row {
    const char* name;
    std::function<at::Tensor()> run;
  };
  const std::vector<Row> rows = {
      {"double", typed(at::kDouble)},
      {"half", typed(at::kHalf)},
      {"large bfloat16", [&] { return at::mm(large, large); }},
      {"complex", typed(at::kComplexFloat)},
      {"int", typed(at::kInt)},
      {"conj view", [&] { return at::mm(at::complex(a, a).conj(), at::complex(b, b)); }},
      {"no rows",
       [&] {
         return at::mm(at::empty({0, 6}), b);
       }},
      {"k = 0",
       [&] {
         return at::mm(at::empty({5, 0}), at::empty({0, 7}));
       }},
      {"addmm, k = 0",
       [&] {
         return at::addmm(at::ones({7}), at::empty({5, 0}), at::empty({0, 7}));
       }},
      {"empty batch",
       [&] {
         return at::bmm(at::empty({0, 5, 6}), at::empty({0, 6, 7}));
       }},
      {"sparse", [&] { return at::mm(a.to_sparse(), b); }},
      {"sparse csr", [&] { return at::mm(a.to_sparse_csr(), b); }},
      {"mkldnn", [&] { return at::mm(a.to_mkldnn(), b.to_mkldnn()).to_dense(); }},
      {"meta", [&] { return at::mm(a.to(at::kMeta), b.to(at::kMeta)); }},
      {"wrong sizes", [&] { return at::mm(a, a); }},
      {"wrong dimensions", [&] { return at::mm(batch, b); }},
      {"wrong batches",
       [&] {
         return at::bmm(at::randn({2, 5, 6}), batch);
       }},
      {"other types", [&] { return at::mm(a, b.to(at::kDouble)); }},
      {"other devices", [&] { return at::mm(a, b.to(at::kMeta)); }},
      {"wrong self", [&] { return at::addmm(at::ones({8}), a, b); }},
      {"wrong self, beta 0", [&] { return at::addmm(at::ones({8}), a, b, 0); }},
      {"self of another type", [&] { return at::addmm(at::ones({7}, at::kDouble), a, b); }},
      {"self of another type, beta 0", [&] { return at::addmm(at::ones({7}, at::kInt), a, b, 0); }},
      {"scalar self", [&] { return at::addmm(at::ones({}), wide, tall); }},
      {"column self",
       [&] {
         return at::addmm(at::ones({40, 1}), wide, tall);
       }},
      {"self in place too small", [&] { return at::ones({7}).addmm_(a, b); }},
      {"alpha beyond float", [&] { return at::addmm(at::ones({7}), a, b, 1, 1e300); }},
      {"beta beyond float", [&] { return at::addmm(at::ones({7}), a, b, 1e300); }},
      // Ours count them as 1 and 0: of whole numbers the sums are exact, in whatever order the library adds.
      {"boolean alpha", [&] { return at::addmm(at::ones({7}), a.round(), b.round(), 1, true); }},
      {"boolean beta", [&] { return at::addmm(at::ones({7}), a.round(), b.round(), false); }},
      {"complex alpha", [&] { return at::addmm(at::ones({7}), a, b, 1, c10::complex<double>(1, 1)); }},
      {"infinite alpha", [&] { return at::addmm(at::ones({7}), a, b, 1, std::numeric_limits<double>::infinity()); }},
      {"overlapping operand",
       [&] {
         return at::mm(at::arange(46.F).as_strided({40, 6}, {1, 1}), b);
       }},
      {"overlapping operand of a long sum",
       [&] {
         at::manual_seed(2);
         return at::mm(at::randn({1040}).as_strided({64, 1000}, {0, 1}), right());
       }},
      {"nested tensors",
       [&] {
         const at::Tensor nested = at::_nested_tensor_from_tensor_list({at::ones({2, 6}), at::ones({4, 6})});
         return at::bmm(nested, at::_nested_tensor_from_tensor_list({at::ones({6, 3}), at::ones({6, 3})}))
             .to_padded_tensor(0);
       }},
      {"alpha 0 and NaN",
       [&] {
         return at::addmm(at::ones({7}), at::full({5, 6}, std::nan("")), b, 1, 0);
       }},
      {"alpha 0 and infinity in a batch",
       [&] {
         const at::Tensor infinite = at::full({3, 5, 6}, std::numeric_limits<float>::infinity());
         return at::baddbmm(at::ones({3, 5, 7}), infinite, batch, 1, 0);
       }},
      {"out that begins within the second operand",
       [&] {
         const at::Tensor both = at::arange(72.F).reshape({12, 6});
         at::Tensor out = both.narrow(0, 3, 6);
         return at::mm_out(out, at::ones({6, 6}), both.narrow(0, 0, 6));
       }},
      {"out that has one element of an operand",
       [&] {
         const at::Tensor both = at::ones({64 * 1000 + 64 * 64 - 1});
         at::Tensor out = both.narrow(0, 64 * 1000 - 1, 64 * 64).view({64, 64});
         const ProductRecorder recorder;  // what libtorch computes then depends on its threads
         at::mm_out(out, both.narrow(0, 0, 64 * 1000).view({64, 1000}), right());
         CHECK(recorder.shapes().empty());
         return both.narrow(0, 0, 1);
       }},
      {"batches of out that overlap",
       [&] {
         at::Tensor out = at::zeros({200}).as_strided({3, 5, 7}, {7, 7, 1});
         return at::bmm_out(out, at::ones({3, 5, 6}), batch);
       }},
      {"out that overlaps itself",
       [&] {
         at::Tensor out = at::zeros({1, 7}).expand({5, 7});
         return at::mm_out(out, a, b);
       }},
      {"out is an operand",
       [&] {
         at::Tensor out = at::ones({6, 6});
         return at::mm_out(out, out, at::ones({6, 6}));
       }},
      {"out within an operand",
       [&] {
         const at::Tensor both = at::arange(72.F).reshape({12, 6});
         at::Tensor out = both.narrow(0, 3, 6);
         return at::mm_out(out, both.narrow(0, 0, 6), at::ones({6, 6}));
       }},
      {"self within out",
       [&] {
         at::Tensor out = at::arange(36.F).reshape({6, 6});
         return at::addmm_out(out, out[2], at::ones({6, 6}), at::ones({6, 6}));
       }},
      {"out of another type",
       [&] {
         at::Tensor out = at::empty({5, 7}, at::kDouble);
         return at::mm_out(out, a, b);
       }},
      {"out of another size",
       [&] {
         at::Tensor out = at::empty({0});
         return at::mm_out(out, a, b);
       }},
      {"columns of out adjacent",
       [&] {
         at::Tensor out = at::empty({40, 40}).t();
         return at::mm_out(out, wide, tall);
       }},
      {"out requires a gradient",
       [&] {
         at::Tensor out = at::empty({5, 7}).requires_grad_();
         return at::mm_out(out, a, b);
       }},
      {"autocast",
       [&] {
         at::autocast::set_autocast_enabled(at::kCPU, true);
         const at::Tensor result = at::mm(wide, tall);
         at::autocast::set_autocast_enabled(at::kCPU, false);
         at::autocast::clear_cache();
         return result;
       }},
  };
  const ProductTable table = everything();
  for (const auto& [name, run] : rows) {
    CAPTURE(std::string(name));
    at::Tensor before, within;
    const std::string error = test::error_of([&] { before = run(); });
    const ProductScope scope(table);
    const ProductRecorder recorder;
    CHECK(test::error_of([&] { within = run(); }) == error);
    if (before.defined() && within.defined()) CHECK(same(before, within));
    if (!before.defined()) CHECK(error != "no error");
  }
}

TEST_CASE("A beta too small for a float is 0, and then NaN in self is ignored") {
  const ProductTable table = everything();
  const ProductScope scope(table);
  const at::Tensor self = at::full({4, 4}, std::nan(""));
  CHECK(at::addmm(self, at::ones({4, 2}), at::ones({2, 4}), 1e-300).equal(at::full({4, 4}, 2.F)));
}

TEST_CASE("A scope takes no temporary table, and warns if another one was begun after it and has not ended") {
  static_assert(std::is_constructible_v<ProductScope, const ProductTable&>);
  static_assert(!std::is_constructible_v<ProductScope, ProductTable>);
  const ProductTable table = everything(), none;
  {
    const test::Warnings warnings;
    auto outer = std::make_unique<ProductScope>(table), inner = std::make_unique<ProductScope>(none);
    inner.reset();
    outer.reset();
    CHECK(warnings.texts.empty());
  }
  if (!kernels::has_gemm()) return;
  const auto is_on = [] { return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake); };
  const at::Tensor a = left(), b = right(), own = own_mm(a, b);
  for (const bool inner_is_own : {true, false}) {
    const test::Warnings warnings;
    auto outer = std::make_unique<ProductScope>(inner_is_own ? none : table);
    const ProductScope inner(inner_is_own ? table : none);
    outer.reset();
    CHECK(warnings.say("must end in the reverse order"));
    CHECK(is_on() == inner_is_own);
    if (inner_is_own) CHECK(same(at::mm(a, b), own));
  }
  CHECK_FALSE(is_on());
}

TEST_CASE("An infinite alpha makes NaN where libtorch's product does, and nowhere else") {
  // The first parts of k are positive, the last negative: infinities of parts would cancel.
  at::Tensor a = at::ones({4, 600});
  a.slice(1, 300) *= -0.5;
  const at::Tensor b = at::ones({600, 4}), self = at::zeros({4, 4});
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor expected = at::addmm(self, a, b, 1, infinity);
  const ProductTable table = everything();
  const ProductScope scope(table);
  CHECK(same(at::addmm(self, a, b, 1, infinity), expected));
}

TEST_CASE("The dispatch key is on within scopes that need it alone") {
  if (!kernels::has_gemm()) return;
  const auto is_on = [] { return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake); };
  const ProductTable table = everything(), none;
  CHECK_FALSE(is_on());
  {
    const ProductScope scope(table);
    CHECK(is_on());
    {
      const ProductScope inner(none);
      CHECK_FALSE(is_on());
    }
    CHECK(is_on());
  }
  CHECK_FALSE(is_on());
  {
    const ProductRecorder recorder;
    CHECK(is_on());
    std::thread([&] {
      const ProductScope scope(none);
      at::mm(at::ones({3, 3}), at::ones({3, 3}));
    }).join();
    CHECK(recorder.shapes().empty());
  }
  CHECK_FALSE(is_on());
}

TEST_CASE("Views whose values are negated, and tensors of an InferenceMode, are products of our kernels") {
  if (!kernels::has_gemm()) return;
  const at::Tensor a = left(), b = right();
  const ProductTable table = everything();
  const ProductScope scope(table);
  CHECK(same(at::mm(at::_neg_view(a), b), own_mm(a.neg(), b)));
  at::Tensor memory = at::empty({64, 64}), out = at::_neg_view(memory);
  CHECK(same(at::mm_out(out, a, b), own_mm(a, b)));
  CHECK(same(memory, own_mm(a, b).neg()));
  const c10::InferenceMode inference;
  CHECK(same(at::mm(a, b), own_mm(a, b)));
  CHECK(at::mm(a, b).is_inference());
  at::Tensor normal = at::zeros({64, 64});
  CHECK(same(normal.addmm_(a, b), own_mm(a, b)));
}

TEST_CASE("beta of 0 ignores what NaN there is in self") {
  if (!kernels::has_gemm()) return;
  const at::Tensor a = left(), b = right(), self = at::full({64, 64}, std::numeric_limits<float>::quiet_NaN());
  const ProductTable table = everything();
  const ProductScope scope(table);
  CHECK(same(at::addmm(self, a, b, 0), own_mm(a, b)));
  at::Tensor in_place = self.clone();
  CHECK(same(in_place.addmm_(a, b, 0), own_mm(a, b)));
  CHECK(at::addmm(self, a, b).isnan().all().item<bool>());
}

TEST_CASE("An in-place product within a scope raises the version that autograd checks") {
  const ProductTable table = everything();
  const ProductScope scope(table);
  const at::Tensor x = at::randn({4, 4}).requires_grad_();
  at::Tensor factor = at::randn({4, 4});
  const at::Tensor y = (x * factor).sum();
  factor.addmm_(at::randn({4, 4}), at::randn({4, 4}));
  CHECK(test::error_of([&] { y.backward(); }).find("modified by an inplace operation") != std::string::npos);
}

TEST_CASE("Gradients through a scope, also second ones, are right and computed by our kernels") {
  if (!kernels::has_gemm()) return;
  const ProductTable table = everything();
  using Tensors = std::vector<at::Tensor>;
  const auto gradients = [](const Tensors& inputs, bool second) {
    const at::Tensor hidden = at::addmm(inputs[1], inputs[0], inputs[2].t()).tanh();
    const at::Tensor y = at::bmm(hidden.reshape({2, 8, 12}), inputs[3]);
    Tensors first = torch::autograd::grad({y.pow(2).sum()}, inputs, {}, true, second);
    if (!second) return first;
    at::Tensor sum = at::zeros({}, inputs[0].options());
    for (const at::Tensor& gradient : first) sum = sum + gradient.pow(2).sum();
    return Tensors(torch::autograd::grad({sum}, inputs));
  };
  at::manual_seed(3);
  const Tensors inputs = {at::randn({16, 10}), at::randn({12}), at::randn({12, 10}), at::randn({2, 12, 5})};
  for (const bool second : {false, true}) {
    Tensors singles, doubles;
    for (const at::Tensor& input : inputs) {
      singles.push_back(input.clone().requires_grad_());
      doubles.push_back(input.to(at::kDouble).requires_grad_());
    }
    const Tensors expected = gradients(doubles, second);
    const ProductScope scope(table);
    std::map<ProductShape, std::int64_t> recorded;
    std::vector<std::string> below;
    Tensors found;
    {
      const ProductRecorder recorder;
      found = gradients(singles, second);
      recorded = recorder.shapes();
    }
    CAPTURE(second);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CAPTURE(i);
      CHECK((found[i].to(at::kDouble) - expected[i]).norm().item<double>() < 1e-5 * expected[i].norm().item<double>());
    }
    std::int64_t count = 0;
    for (const auto& [shape, times] : recorded) count += times;
    CHECK(recorded.contains({1, 12, 10, 16, Layout::COLUMNS, Layout::ROWS, false}));  // of the weight
    CHECK(recorded.contains({2, 12, 5, 8, Layout::COLUMNS, Layout::ROWS, false}));    // of the batch's second factor
    CHECK(count >= (second ? 14 : 6));
  }
}

TEST_CASE("Gradients that are large sums equal those of our kernels to the bit") {
  if (!kernels::has_gemm()) return;
  const ProductTable table = everything();
  const at::Tensor x = at::randn({1000, 64}), w = at::randn({64, 32}).requires_grad_(), seed = at::randn({1000, 32});
  const at::Tensor theirs = torch::autograd::grad({at::mm(x, w)}, {w}, {seed})[0];
  const ProductScope scope(table);
  const at::Tensor found = torch::autograd::grad({at::mm(x, w)}, {w}, {seed})[0];
  CHECK(same(found, own_mm(x.t(), seed)));
  CHECK(!same(found, theirs));
}

}  // namespace composer::products_test
