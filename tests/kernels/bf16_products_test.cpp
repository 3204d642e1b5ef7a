// Products of small matrices of bfloat16 by our kernels, compared with ours in fp32, with libtorch's and with double.
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/kernels/gemm_bf16.h"
#include "composer/kernels/products.h"
#include "tests/kernels/random_products.h"
#include "tests/kernels/support.h"
#include "tests/support/doctest.h"

namespace composer::bf16_products_test {

using kernels::ProductRecorder, kernels::ProductScope, kernels::ProductTable;
using test::compute, test::Generator, test::Product;
using test::everything;

namespace {

at::Tensor in_scope(const Product& p, at::ScalarType type) {
  const ProductTable table = everything();
  const ProductScope scope(table);
  return compute(p, type);
}

std::string describe(const Product& p) {
  return join(p.a.sizes(), " ", p.a.strides(), " by ", p.b.sizes(), " ", p.b.strides(), ", self ",
              test::kSelves[static_cast<std::size_t>(p.kind)], ", ", test::kResults[static_cast<std::size_t>(p.result)],
              ", alpha ", p.alpha, ", beta ", p.beta);
}

std::uint16_t bits(c10::BFloat16 number) { return number.x; }

struct Errors {
  double own = 0, library = 0;
  int products = 0;
};

}  // namespace

TEST_CASE("Random products in bf16 are those in fp32, rounded once, and have errors no larger than libtorch's") {
  if (!kernels::has_gemm()) return;
  const char* wanted = std::getenv("COMPOSER_PRODUCTS");
  const int count = wanted ? std::atoi(wanted) : 400;
  at::manual_seed(12);
  Generator generator(12, 4e6, at::kBFloat16);
  const ProductTable table = everything();
  std::map<std::string, Errors> groups;
  int for_us = 0;
  for (int i = 0; i < count; ++i) {
    const Product p = generator.next();
    const std::int64_t k = p.a.size(-1);
    const bool is_for_us = p.for_us && kernels::is_small_for_bf16(p.a.size(-2), p.b.size(-1), k);
    const std::string what = join(i, ": ", describe(p));
    CAPTURE(what);
    const at::Tensor library = compute(p, at::kBFloat16);
    at::Tensor own, other;
    std::int64_t recorded = 0;
    {
      const ProductScope scope(table);
      const ProductRecorder recorder;
      own = compute(p, at::kBFloat16);
      for (const auto& [shape, times] : recorder.shapes()) recorded += shape.type == at::kBFloat16 ? times : 0;
      const test::Instructions avx2("AVX2");
      const test::Threads threads(1 + i % 4);
      other = compute(p, at::kBFloat16);
    }
    CHECK((recorded == 1) == is_for_us);
    if (!is_for_us) {
      const bool is_defined = p.alpha != 0 || p.beta != 0;  // libtorch's baddbmm leaves memory as it was if both are 0
      if (is_defined) CHECK(at::equal(own, library));
      continue;
    }
    ++for_us;
    const bool is_bf16 = own.scalar_type() == at::kBFloat16;
    CHECK(is_bf16);
    CHECK(at::equal(own, other));
    CHECK(at::equal(own, in_scope(p, at::kFloat).to(at::kBFloat16)));
    const at::Tensor exact = compute(p, at::kDouble), size = exact.abs().clamp_min(1e-3);
    const double ours = ((own.to(at::kDouble) - exact) / size).norm().item<double>();
    const double theirs = ((library.to(at::kDouble) - exact) / size).norm().item<double>();
    for (const char* group : {"all", p.kind == test::Self::NONE ? "alone" : "with self"}) {
      Errors& errors = groups[group];
      errors.own += ours * ours / static_cast<double>(own.numel());
      errors.library += theirs * theirs / static_cast<double>(own.numel());
      ++errors.products;
    }
  }
  CHECK(for_us > count / 4);
  for (const auto& [group, errors] : groups) {
    CAPTURE(group);
    const double ratio = std::sqrt(errors.own / errors.library);
    if (wanted) MESSAGE(group << ", " << errors.products << " products: error " << ratio << " times libtorch's");
    CHECK(ratio <= 1.001);
  }
}

TEST_CASE("A product in bf16 within a scope is that of our kernels, and libtorch's again after it") {
  if (!kernels::has_gemm()) return;
  at::manual_seed(13);
  // Large terms cancel, so that the order of the sums decides about most digits.
  const auto options = at::TensorOptions(at::kBFloat16);
  const at::Tensor half = at::randn({16, 300}, options).mul(1000), b = at::randn({300, 16}, options);
  const at::Tensor left = at::cat({half, half.neg()}, 1), right = at::cat({b, b}, 0);
  const at::Tensor theirs = at::mm(left, right);
  at::Tensor ours = at::empty({16, 16}, options);
  kernels::gemm_bf16({.m = 16,
                      .n = 16,
                      .k = 600,
                      .a = {left.const_data_ptr<at::BFloat16>(), 600, 1},
                      .b = {right.const_data_ptr<at::BFloat16>(), 16, 1},
                      .c = ours.mutable_data_ptr<at::BFloat16>(),
                      .c_row = 16});
  CHECK_FALSE(ours.equal(theirs));
  {
    const ProductTable table = everything();
    const ProductScope scope(table);
    CHECK(at::mm(left, right).equal(ours));
  }
  CHECK(at::mm(left, right).equal(theirs));
}

TEST_CASE("Every number of bf16 is read exactly and rounded to the nearest even one, with infinities and NaN") {
  if (!kernels::has_gemm()) return;
  std::vector<c10::BFloat16> all(1 << 16), result(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = c10::BFloat16(static_cast<unsigned short>(i), c10::BFloat16::from_bits());
  const c10::BFloat16 one = 1;
  // Multiplied by 1 + 2^-8, odd numbers lie halfway between two of bf16; by 1.5, some become infinite.
  for (const float alpha : {1.0F, 1.00390625F, 0.99609375F, 1.5F, -1.00390624F})
    for (const char* instructions : {"AVX2", static_cast<const char*>(nullptr)}) {
      const test::Instructions of(instructions);
      // In two parts, each small enough, with a remainder after the vectors.
      for (const std::size_t from : {std::size_t{0}, std::size_t{32765}})
        kernels::gemm_bf16({.m = from ? 32771 : 32765,
                            .n = 1,
                            .k = 1,
                            .a = {all.data() + from, 1, 1},
                            .b = {&one, 1, 1},
                            .c = result.data() + from,
                            .c_row = 1,
                            .alpha = alpha});
      int wrong = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const float sum = static_cast<float>(all[i]) * 1.0F + 0.0F;
        wrong += bits(result[i]) != bits(c10::BFloat16(sum * alpha));
      }
      CAPTURE(alpha);
      CHECK(wrong == 0);
    }
}

TEST_CASE("Products in bf16 touch nothing beyond their operands") {
  if (!kernels::has_gemm()) return;
  constexpr std::int64_t kMost = 40 * 40;
  test::Fenced of_a(kMost), of_b(kMost), of_c(kMost), of_plus(kMost);
  const auto place = [](test::Fenced& fence, std::int64_t count, bool at_end) {
    auto* begin = reinterpret_cast<c10::BFloat16*>(fence.place(static_cast<std::size_t>((count + 1) / 2), at_end));
    return begin + (at_end ? count % 2 : 0);
  };
  for (const bool at_end : {false, true})
    for (const std::int64_t m : {1, 3, 15, 17, 40})
      for (const std::int64_t n : {1, 7, 16, 33})
        for (const std::int64_t k : {1, 8, 19, 40})
          for (int form = 0; form < 4; ++form) {
            const bool a_is_transposed = form & 1, b_is_transposed = form & 2;
            auto *a = place(of_a, m * k, at_end), *b = place(of_b, k * n, at_end), *c = place(of_c, m * n, at_end),
                 *plus = place(of_plus, n, at_end);
            std::fill_n(a, m * k, c10::BFloat16(2.0F));
            std::fill_n(b, k * n, c10::BFloat16(0.5F));
            std::fill_n(plus, n, c10::BFloat16(3.0F));
            kernels::gemm_bf16({.m = m,
                                .n = n,
                                .k = k,
                                .a = {a, a_is_transposed ? 1 : k, a_is_transposed ? m : 1},
                                .b = {b, b_is_transposed ? 1 : n, b_is_transposed ? k : 1},
                                .c = c,
                                .c_row = n,
                                .plus = plus});
            CHECK(std::all_of(c, c + m * n, [&](float x) { return x == static_cast<float>(k + 3); }));
          }
}

TEST_CASE("Empty products in bf16, those of mixed types and those that write over an operand are libtorch's") {
  const ProductTable table = everything();
  const auto options = at::TensorOptions(at::kBFloat16);
  const at::Tensor a = at::randn({6, 6}, options), b = at::randn({6, 6}, options), nothing = at::empty({6, 0}, options);
  const auto recorded = [&](const auto& product) {
    const ProductScope scope(table);
    const ProductRecorder recorder;
    product();
    return recorder.shapes().size();
  };
  CHECK(recorded([&] { CHECK(at::mm(nothing, nothing.t()).equal(at::zeros({6, 6}, options))); }) == 0);
  CHECK(recorded([&] { CHECK(at::addmm(a, nothing, nothing.t()).equal(a)); }) == 0);
  CHECK(recorded([&] { CHECK_THROWS(at::mm(a, b.to(at::kFloat))); }) == 0);
  CHECK(recorded([&] { CHECK_THROWS(at::addmm(a.to(at::kFloat), a, b)); }) == 0);
  CHECK(recorded([&] {
          at::Tensor out = at::empty({6, 6});
          CHECK_THROWS(at::mm_out(out, a, b));
        }) == 0);
  if (!kernels::has_gemm()) return;
  at::Tensor both = a.clone();
  CHECK(recorded([&] { both.addmm_(a, b); }) == 1);
  CHECK(both.equal(at::addmm(a.to(at::kFloat), a.to(at::kFloat), b.to(at::kFloat)).to(at::kBFloat16)));
  // Into memory that an operand uses, also in part.
  const at::Tensor memory = at::randn({100}, options);
  at::Tensor out = memory.narrow(0, 20, 36).view({6, 6});
  const at::Tensor operand = memory.narrow(0, 50, 36).view({6, 6});
  CHECK(recorded([&] { at::mm_out(out, operand.clone(), b); }) == 1);
  const auto overlaps = [&] {
    try {
      at::mm_out(out, operand, b);
    } catch (const c10::Error&) {  // libtorch's own check
    }
  };
  CHECK(recorded(overlaps) == 0);
}

}  // namespace composer::bf16_products_test
