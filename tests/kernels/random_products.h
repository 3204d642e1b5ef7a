#pragma once
// Random products of matrices in every form of the operators. Shared by the tests of products in fp32 and in bf16.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <ATen/ATen.h>

namespace composer::test {

enum class Self { NONE, BIAS, ROW, WHOLE, COLUMN, SCALAR };
enum class Result { NEW, OUT, COLUMN_MAJOR_OUT, SLICED_OUT, IN_PLACE };
inline constexpr std::array<const char*, 6> kSelves = {"none", "[n]", "[1, n]", "[m, n]", "[m, 1]", "[]"};
inline constexpr std::array<const char*, 5> kResults = {"new", "out", "column-major out", "sliced out", "in place"};

struct Product {
  at::Tensor a, b, self;
  Self kind = Self::NONE;
  Result result = Result::NEW;
  double alpha = 1, beta = 1;
  bool for_us = true;
};

class Generator {
 public:
  Generator(std::uint64_t seed, double most, at::ScalarType type = at::kFloat)
      : random_(seed), most_(most), type_(type) {}

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
      return batched ? at::randn({batch, r, c}, type_) : at::randn({r, c}, type_);
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
          return below(2) ? at::randn({1, rows, columns}, type_).expand({batch, rows, columns})
                          : at::randn({rows, batch, columns}, type_).transpose(0, 1);
        [[fallthrough]];
      default:
        return whole(rows, columns);
    }
  }

  at::Tensor self(Self kind, bool batched, std::int64_t batch, std::int64_t m, std::int64_t n) {
    switch (kind) {
      case Self::BIAS:
        return at::randn({n}, type_);
      case Self::ROW:
        return at::randn({1, n}, type_);
      case Self::COLUMN:
        return at::randn({m, 1}, type_);
      case Self::SCALAR:
        return at::randn({}, type_);
      default:
        return batched ? at::randn({batch, m, n}, type_) : at::randn({m, n}, type_);
    }
  }

  std::mt19937_64 random_;
  double most_;
  at::ScalarType type_;
};

// As the product says; `self` and the result are new each time.
inline at::Tensor compute(const Product& p, at::ScalarType type = at::kFloat) {
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

}  // namespace composer::test
