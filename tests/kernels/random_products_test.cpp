// Random products of all forms, computed by our kernels, by libtorch and in double. COMPOSER_PRODUCTS sets how many.
#include "tests/kernels/random_products.h"

#include <cstdlib>
#include <map>
#include <string_view>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/kernels/products.h"
#include "tests/kernels/support.h"
#include "tests/support/doctest.h"

namespace composer::random_products_test {

using kernels::ProductRecorder, kernels::ProductScope, kernels::ProductTable;
using test::compute, test::Generator, test::kResults, test::kSelves, test::Product;

namespace {

// Sums of squares of the elements' errors, each relative to the sum of the absolute values of what it consists of.
struct Errors {
  double own = 0, library = 0;
  int products = 0;
};

// Whether MKL uses AVX-512 here, which it does on Intel's processors alone, and can be told not to.
bool library_has_avx512() {
  const char* told = std::getenv("MKL_ENABLE_INSTRUCTIONS");
  const char* reproducible = std::getenv("MKL_CBWR");
  return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f") && !reproducible &&
         (!told || std::string_view(told).starts_with("AVX512"));
}

}  // namespace

TEST_CASE("Random products of matrices have errors no larger than libtorch's, whatever their form and operands") {
  if (!kernels::has_gemm()) return;
  const char* wanted = std::getenv("COMPOSER_PRODUCTS");
  const int count = wanted ? std::atoi(wanted) : 500;
  at::manual_seed(11);
  Generator generator(11, wanted ? 1e8 : 4e6);
  ProductTable table;
  table.set_others(true);
  std::map<std::string, Errors> groups;
  int for_us = 0;
  for (int i = 0; i < count; ++i) {
    const Product p = generator.next();
    Product magnitudes = p;
    magnitudes.a = p.a.abs();
    magnitudes.b = p.b.abs();
    if (p.self.defined()) magnitudes.self = p.self.abs();
    magnitudes.alpha = std::abs(p.alpha);
    magnitudes.beta = std::abs(p.beta);
    const at::Tensor exact = compute(p, at::kDouble), library = compute(p);
    at::Tensor own;
    std::int64_t recorded = 0;
    {
      const ProductScope scope(table);
      const ProductRecorder recorder;
      own = compute(p);
      for (const auto& [shape, times] : recorder.shapes()) recorded += times;
      const test::Instructions avx2("AVX2");
      const test::Threads threads(1 + i % 4);
      const at::Tensor other = compute(p);
      if (p.for_us)
        CHECK(test::same_bits(own.contiguous().const_data_ptr<float>(), other.contiguous().const_data_ptr<float>(),
                              static_cast<std::size_t>(own.numel())));
    }
    const std::int64_t k = p.a.size(-1);
    const std::string what = join(i, ": ", p.a.sizes(), " ", p.a.strides(), " by ", p.b.sizes(), " ", p.b.strides(),
                                  ", self ", kSelves[static_cast<std::size_t>(p.kind)], ", ",
                                  kResults[static_cast<std::size_t>(p.result)], ", alpha ", p.alpha, ", beta ", p.beta);
    CAPTURE(what);
    const bool is_recorded = recorded == 1;
    CHECK(is_recorded == p.for_us);
    if (!p.for_us) {
      CHECK(at::equal(own, library));
      continue;
    }
    ++for_us;
    const at::Tensor size = compute(magnitudes, at::kDouble).clamp_min(1e-30);
    const at::Tensor own_error = (own.to(at::kDouble) - exact) / size,
                     their_error = (library.to(at::kDouble) - exact) / size;
    // What no order of the sums that gemm.h promises can exceed: a rounding for each multiply-add of a part of k, one
    // for each part, and three for alpha, beta and the sum with self.
    const double bound = static_cast<double>(std::min<std::int64_t>(k, 256) + k / 256 + 4) * 0x1p-24;
    CHECK(own_error.abs().max().item<double>() <= bound);
    const double ours = own_error.norm().item<double>(), theirs = their_error.norm().item<double>();
    const double elements = std::sqrt(static_cast<double>(own.numel()));
    CHECK(ours <= 4 * theirs + 0x1p-23 * elements);
    const std::string kind = p.a.size(-2) == 1 || p.b.size(-1) == 1 ? "vectors" : "matrices";
    const std::string depth = k <= 16 ? "k to 16" : k <= 128 ? "k to 128" : k <= 512 ? "k to 512" : "k to 2,000";
    for (const std::string& group : {kind, kind + ", " + depth, kind + (p.a.dim() == 3 ? ", batches" : ", alone"),
                                     kind + ", self " + kSelves[static_cast<std::size_t>(p.kind)],
                                     kind + ", " + kResults[static_cast<std::size_t>(p.result)]}) {
      Errors& errors = groups[group];
      errors.own += ours * ours / (elements * elements);
      errors.library += theirs * theirs / (elements * elements);
      ++errors.products;
    }
  }
  CHECK(for_us > count / 3);
  for (const auto& [group, errors] : groups) {
    if (errors.products < 40) continue;  // the few decide by chance
    CAPTURE(group);
    const double ratio = std::sqrt(errors.own / errors.library);
    if (wanted) MESSAGE(group << ", " << errors.products << " products: error " << ratio << " times libtorch's");
    // libtorch computes the product with a vector as dot products of several sums each, which are a little more exact;
    // and MKL's kernels for processors without AVX-512 are up to 12 % more exact than one sum if k is small.
    const double matrices = !library_has_avx512() ? 1.2 : group == "matrices" ? 1.01 : 1.05;
    CHECK(ratio <= (group.starts_with("matrices") ? matrices : 1.6));
  }
}

}  // namespace composer::random_products_test
