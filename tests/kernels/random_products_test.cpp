// Random products of all forms, computed by our kernels, by libtorch and in double. COMPOSER_PRODUCTS sets how many.
#include <cstdlib>
#include <map>

#include <ATen/ATen.h>

#include <doctest/doctest.h>

#include "composer/core/error.h"
#include "composer/kernels/products.h"
#include "tests/kernels/support.h"

using namespace composer;
using kernels::ProductRecorder, kernels::ProductScope, kernels::ProductTable;

namespace {

enum class Self { NONE, BIAS, ROW, WHOLE, COLUMN, SCALAR };
enum class Result { NEW, OUT, COLUMN_MAJOR_OUT, SLICED_OUT, IN_PLACE };
constexpr std::array<const char*, 6> kSelves = {"none", "[n]", "[1, n]", "[m, n]", "[m, 1]", "[]"};
constexpr std::array<const char*, 5> kResults = {"new", "out", "column-major out", "sliced out", "in place"};

struct Product {
  at::Tensor a, b, self;
  Self kind = Self::NONE;
  Result result = Result::NEW;
  double alpha = 1, beta = 1;
  bool for_us = true;
};

class Generator {
 public:
  explicit Generator(std::uint64_t seed, double most) : random_(seed), most_(most) {}

  Product next() {
    Product p;
    const bool batched = below(3) == 0;
    std::int64_t batch = 1, m = 0, n = 0, k = 0;
    do {
      batch = batched ? 1 + below(below(4) ? 5 : 40) : 1;
      m = size();
      n = size();
      k = size();
    } while (static_cast<double>(batch * m) * static_cast<double>(n * k) > most_ ||
             batch * (m * k + k * n + m * n) > 3000000);
    p.a = operand(batched, batch, m, k);
    p.b = operand(batched, batch, k, n);
    p.kind = static_cast<Self>(below(6));
    p.result = static_cast<Result>(below(5));
    if (p.kind == Self::NONE && p.result == Result::IN_PLACE) p.kind = Self::WHOLE;
    if (p.result == Result::IN_PLACE) p.kind = Self::WHOLE;
    if (p.kind != Self::NONE) {
      p.self = self(p.kind, batched, batch, m, n);
      constexpr std::array<double, 4> kFactors = {1, 0, -0.7, 2.5};
      if (below(2)) p.alpha = kFactors[static_cast<std::size_t>(below(4))];
      if (below(2)) p.beta = kFactors[static_cast<std::size_t>(below(4))];
    }
    p.for_us = !((p.kind == Self::COLUMN || p.kind == Self::SCALAR) && (p.kind == Self::SCALAR || n > 1));
    if (p.result == Result::COLUMN_MAJOR_OUT && n > 1 && m > 1) p.for_us = false;
    if (p.alpha == 0) p.for_us = false;  // libtorch does not read the operands then
    return p;
  }

 private:
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }
  // 1 to 2,000, each power of two as often as another.
  std::int64_t size() {
    const double power = std::uniform_real_distribution<double>(0, below(3) ? 7 : 10.97)(random_);
    return std::clamp<std::int64_t>(std::llround(std::exp2(power)), 1, 2000);
  }

  at::Tensor operand(bool batched, std::int64_t batch, std::int64_t rows, std::int64_t columns) {
    const std::int64_t kind = below(6);
    const auto whole = [&](std::int64_t r, std::int64_t c) {
      return batched ? at::randn({batch, r, c}) : at::randn({r, c});
    };
    switch (kind) {
      case 0:
        return whole(columns, rows).transpose(-1, -2);
      case 1:
        return whole(rows + 3, columns + 5).narrow(-2, 1, rows).narrow(-1, 2, columns);
      case 2:
        return whole(columns + 3, rows + 5).narrow(-2, 1, columns).narrow(-1, 2, rows).transpose(-1, -2);
      case 3:
        return whole(rows, 2 * columns).slice(-1, 0, std::nullopt, 2);
      case 4:
        if (batched)
          return below(2) ? at::randn({1, rows, columns}).expand({batch, rows, columns})
                          : at::randn({rows, batch, columns}).transpose(0, 1);
        [[fallthrough]];
      default:
        return whole(rows, columns);
    }
  }

  at::Tensor self(Self kind, bool batched, std::int64_t batch, std::int64_t m, std::int64_t n) {
    switch (kind) {
      case Self::BIAS:
        return at::randn({n});
      case Self::ROW:
        return at::randn({1, n});
      case Self::COLUMN:
        return at::randn({m, 1});
      case Self::SCALAR:
        return at::randn({});
      default:
        return batched ? at::randn({batch, m, n}) : at::randn({m, n});
    }
  }

  std::mt19937_64 random_;
  double most_;
};

// As the product says; `self` and the result are new each time.
at::Tensor compute(const Product& p, at::ScalarType type = at::kFloat) {
  const at::Tensor a = p.a.to(type), b = p.b.to(type);
  at::Tensor self = p.self.defined() ? p.self.to(type, false, true) : p.self;
  const bool batched = a.dim() == 3;
  const std::vector<std::int64_t> sizes =
      batched ? std::vector{a.size(0), a.size(1), b.size(2)} : std::vector{a.size(0), b.size(1)};
  at::Tensor out;
  if (p.result == Result::OUT) out = at::empty(sizes, a.options());
  if (p.result == Result::COLUMN_MAJOR_OUT)
    out = at::empty_like(at::empty(sizes, a.options()).transpose(-1, -2).contiguous()).transpose(-1, -2);
  if (p.result == Result::SLICED_OUT) {
    std::vector<std::int64_t> wider = sizes;
    wider.back() += 7;
    out = at::empty(wider, a.options()).narrow(-1, 3, sizes.back());
  }
  if (p.result == Result::IN_PLACE)
    return batched ? self.baddbmm_(a, b, p.beta, p.alpha) : self.addmm_(a, b, p.beta, p.alpha);
  if (!out.defined()) {
    if (p.kind == Self::NONE) return batched ? at::bmm(a, b) : at::mm(a, b);
    return batched ? at::baddbmm(self, a, b, p.beta, p.alpha) : at::addmm(self, a, b, p.beta, p.alpha);
  }
  if (p.kind == Self::NONE) return batched ? at::bmm_out(out, a, b) : at::mm_out(out, a, b);
  return batched ? at::baddbmm_out(out, self, a, b, p.beta, p.alpha) : at::addmm_out(out, self, a, b, p.beta, p.alpha);
}

// Sums of squares of the elements' errors, each relative to the sum of the absolute values of what it consists of.
struct Errors {
  double own = 0, library = 0;
  int products = 0;
};

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
    // libtorch computes the product with a vector as dot products of several sums each, which are a little more exact.
    CHECK(ratio <= (group == "matrices" ? 1.01 : group.starts_with("matrices") ? 1.05 : 1.6));
  }
}
