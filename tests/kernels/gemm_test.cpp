#include "composer/kernels/gemm.h"

#include <cstring>
#include <limits>

#include "tests/kernels/support.h"
#include "tests/support/doctest.h"

namespace composer::gemm_test {

using kernels::Gemm, kernels::GemmBatch, kernels::Operand;

namespace {

constexpr float kUntouched = 12345.5F;
constexpr std::array<const char*, 2> kInstructions = {nullptr, "AVX2"};

// A random product, the memory of its operands, and its result.
class Case {
 public:
  enum class Order { ROWS, COLUMNS, NEITHER };

  Case(std::int64_t m, std::int64_t n, std::int64_t k, Order a, Order b, std::mt19937& random) : random_(random) {
    g.m = m;
    g.n = n;
    g.k = k;
    g.a = operand(a_, m, k, a);
    g.b = operand(b_, k, n, b);
    g.c_row = n + below(3) * below(40);
    c.assign(static_cast<std::size_t>((m - 1) * g.c_row + n), kUntouched);
    g.c = c.data();
  }
  // bias: one row for all; in_place: what is added is the result
  void add(bool bias, bool in_place) {
    if (in_place) {
      fill(c);
      g.plus = g.c;
      g.plus_row = g.c_row;
    } else {
      g.plus_row = bias ? 0 : g.n + below(20);
      plus_.resize(static_cast<std::size_t>((g.m - 1) * g.plus_row + g.n));
      fill(plus_);
      g.plus = plus_.data();
    }
  }
  // What the kernels write over a copy of c, gaps between rows included.
  std::vector<float> run() const {
    std::vector<float> result = c;
    Gemm copy = g;
    if (copy.plus == copy.c) copy.plus = result.data();
    copy.c = result.data();
    gemm(copy);
    return result;
  }
  std::vector<float> expected() const {
    std::vector<float> result = c;
    Gemm copy = g;
    if (copy.plus == copy.c) copy.plus = result.data();
    copy.c = result.data();
    test::reference(copy);
    return result;
  }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }
  static std::int64_t span(const Operand& o, std::int64_t rows, std::int64_t columns) {
    return (rows - 1) * o.row + (columns - 1) * o.column + 1;
  }

  Gemm g{};
  std::vector<float> c;

 private:
  void fill(std::vector<float>& values) {
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random_);
  }
  Operand operand(std::vector<float>& memory, std::int64_t rows, std::int64_t columns, Order order) {
    const std::int64_t gap = below(3) * below(9);
    Operand o{nullptr, columns + gap, 1};
    if (order == Order::COLUMNS) o = {nullptr, 1, rows + gap};
    if (order == Order::NEITHER) o = {nullptr, 2 * columns + gap, 2};
    memory.resize(static_cast<std::size_t>(span(o, rows, columns)));
    fill(memory);
    o.data = memory.data();
    return o;
  }

  std::mt19937& random_;
  std::vector<float> a_, b_, plus_;
};

std::int64_t any_of(std::mt19937& random, std::initializer_list<std::int64_t> values) {
  return values.begin()[random() % values.size()];
}
Case::Order any_order(std::mt19937& random) { return static_cast<Case::Order>(random() % 3); }

// Sizes around those of tiles, panels and parts.
Case any_case(std::mt19937& random) {
  const auto size = [&](std::initializer_list<std::int64_t> edges) {
    return random() % 2 ? any_of(random, edges) : static_cast<std::int64_t>(1 + random() % 40);
  };
  return {size({1, 5, 6, 7, 13, 14, 15, 28, 29, 57, 225}),
          size({1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 1025}),
          size({1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 255, 256, 257, 513}),
          any_order(random),
          any_order(random),
          random};
}

std::string name(const Gemm& g) {
  return std::to_string(g.m) + "x" + std::to_string(g.n) + "x" + std::to_string(g.k) + " a " + std::to_string(g.a.row) +
         "," + std::to_string(g.a.column) + " b " + std::to_string(g.b.row) + "," + std::to_string(g.b.column) +
         " alpha " + std::to_string(g.alpha) + " beta " + std::to_string(g.beta) +
         (g.plus ? g.plus == g.c ? " in place" : " plus" : "");
}

}  // namespace

TEST_CASE("Each element of a product is that of gemm.h's definition, to the bit, with all instructions") {
  if (!kernels::has_gemm()) return;
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    Case one = any_case(random);
    if (const auto kind = random() % 4) one.add(kind == 1, kind == 2);
    if (random() % 3 == 0) one.g.alpha = static_cast<float>(random() % 7) - 2.7F;
    if (random() % 3 == 0) one.g.beta = static_cast<float>(random() % 7) - 3.3F;
    one.g.relu = random() % 4 == 0;
    const std::vector<float> expected = one.expected();
    for (const char* instructions : kInstructions) {
      const test::Instructions scope(instructions);
      CAPTURE(name(one.g));
      CAPTURE(kernels::gemm_instructions());
      CHECK(test::same_bits(one.run().data(), expected.data(), expected.size()));
    }
  }
}

TEST_CASE("A product is the same to the bit for any number of threads") {
  if (!kernels::has_gemm()) return;
  std::mt19937 random(2);
  const std::vector<std::array<std::int64_t, 3>> shapes = {
      {200, 300, 71}, {1, 3000, 1500}, {3000, 1, 1500}, {97, 33, 1400}, {17, 2050, 130}, {700, 31, 200}, {64, 64, 64}};
  for (const auto& [m, n, k] : shapes)
    for (const char* instructions : kInstructions) {
      const test::Instructions scope(instructions);
      Case one(m, n, k, any_order(random), any_order(random), random);
      if (random() % 2) one.add(random() % 2, false);
      CAPTURE(name(one.g));
      std::vector<float> alone;
      for (const int threads : {1, 2, 3, 4, 7}) {
        const test::Threads some(threads);
        const std::vector<float> result = one.run();
        if (threads == 1) alone = result;
        CAPTURE(threads);
        CHECK(test::same_bits(result.data(), alone.data(), alone.size()));
      }
    }
}

TEST_CASE("A batch of products is the same to the bit as each alone, for any number of threads") {
  if (!kernels::has_gemm()) return;
  std::mt19937 random(3);
  for (const auto& [size, m, n, k] :
       {std::array<std::int64_t, 4>{5, 20, 30, 40}, {3, 130, 140, 300}, {9, 80, 80, 80}}) {
    std::vector<float> a(static_cast<std::size_t>(size * m * k)), b(static_cast<std::size_t>(k * n)),
        plus(static_cast<std::size_t>(size * n));
    for (auto* values : {&a, &b, &plus})
      for (float& value : *values) value = std::normal_distribution<float>()(random);
    std::vector<float> apart(static_cast<std::size_t>(size * m * n));
    Gemm g{.m = m, .n = n, .k = k, .a = {a.data(), k, 1}, .b = {b.data(), 1, k}, .c = apart.data(), .c_row = n};
    g.plus = plus.data();
    for (std::int64_t i = 0; i < size; ++i) {
      Gemm one = g;
      one.a.data += i * m * k;
      one.c += i * m * n;
      one.plus += i * n;
      test::reference(one);
    }
    for (const int threads : {1, 2, 3, 7}) {
      const test::Threads some(threads);
      std::vector<float> together(apart.size());
      g.c = together.data();
      gemm(g, {.size = size, .a = m * k, .b = 0, .c = m * n, .plus = n});
      CAPTURE(threads);
      CHECK(test::same_bits(together.data(), apart.data(), apart.size()));
    }
  }
}

TEST_CASE("A part of a product's rows and columns is the same to the bit as in the whole") {
  if (!kernels::has_gemm()) return;
  std::mt19937 random(4);
  for (int i = 0; i < 60; ++i) {
    const Case one(20 + static_cast<std::int64_t>(random() % 80), 20 + static_cast<std::int64_t>(random() % 80),
                   1 + static_cast<std::int64_t>(random() % 600), any_order(random), any_order(random), random);
    const std::vector<float> whole = one.run();
    Gemm part = one.g;
    const auto top = static_cast<std::int64_t>(random() % 19), left = static_cast<std::int64_t>(random() % 19);
    part.m = 1 + static_cast<std::int64_t>(random()) % (one.g.m - top);
    part.n = 1 + static_cast<std::int64_t>(random()) % (one.g.n - left);
    part.a.data += top * part.a.row;
    part.b.data += left * part.b.column;
    std::vector<float> result(static_cast<std::size_t>(part.m * part.n));
    part.c = result.data();
    part.c_row = part.n;
    gemm(part);
    CAPTURE(name(part));
    for (std::int64_t row = 0; row < part.m; ++row)
      CHECK(test::same_bits(result.data() + row * part.n, whole.data() + (top + row) * one.g.c_row + left,
                            static_cast<std::size_t>(part.n)));
  }
}

TEST_CASE("Nothing beyond a matrix is read or written") {
  if (!kernels::has_gemm()) return;
  std::mt19937 random(5);
  test::Fenced of_a(1 << 18), of_b(1 << 21), of_c(1 << 19), of_plus(1 << 19);
  const auto place = [&](test::Fenced& fence, const float* from, std::int64_t floats) {
    float* to = fence.place(static_cast<std::size_t>(floats), random() % 2 == 0);
    std::memcpy(to, from, static_cast<std::size_t>(floats) * sizeof(float));
    return to;
  };
  const int cases = 3000;
  for (int i = 0; i < cases; ++i) {
    Case one = any_case(random);
    if (const auto kind = random() % 4) one.add(kind == 1, kind == 2);
    if (random() % 4 == 0) one.g.alpha = 2;
    const std::vector<float> expected = one.run();
    for (const char* instructions : kInstructions) {
      const test::Instructions scope(instructions);
      CAPTURE(name(one.g));
      Gemm g = one.g;
      g.a.data = place(of_a, g.a.data, Case::span(g.a, g.m, g.k));
      g.b.data = place(of_b, g.b.data, Case::span(g.b, g.k, g.n));
      g.c = place(of_c, one.c.data(), static_cast<std::int64_t>(one.c.size()));
      if (g.plus) g.plus = g.plus == one.g.c ? g.c : place(of_plus, g.plus, (g.m - 1) * g.plus_row + g.n);
      gemm(g);  // ends the program if it reads or writes a fence
      CHECK(test::same_bits(g.c, expected.data(), expected.size()));
    }
  }
}

TEST_CASE("Infinities and NaN reach the elements of their rows and columns, and no others") {
  if (!kernels::has_gemm()) return;
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 random(6);
  for (const char* instructions : kInstructions) {
    const test::Instructions scope(instructions);
    for (int i = 0; i < 100; ++i) {
      Case one = any_case(random);
      const auto row = static_cast<std::int64_t>(random()) % one.g.m,
                 column = static_cast<std::int64_t>(random()) % one.g.n,
                 k = static_cast<std::int64_t>(random()) % one.g.k;
      const_cast<float*>(one.g.a.data)[row * one.g.a.row + k * one.g.a.column] = kInfinity;
      const_cast<float*>(one.g.b.data)[k * one.g.b.row + column * one.g.b.column] = kNaN;
      const std::vector<float> c = one.run();
      CAPTURE(name(one.g));
      for (std::int64_t y = 0; y < one.g.m; ++y)
        for (std::int64_t x = 0; x < one.g.n; ++x) {
          const float value = c[static_cast<std::size_t>(y * one.g.c_row + x)];
          REQUIRE(std::isnan(value) == (x == column));
          REQUIRE(std::isinf(value) == (y == row && x != column));
        }
    }
  }
}

TEST_CASE("A product followed by relu is 0 where it is negative, and NaN where it is NaN") {
  if (!kernels::has_gemm()) return;
  const std::array<float, 3> a = {-1, 2, std::numeric_limits<float>::quiet_NaN()};
  const std::array<float, 1> b = {3};
  for (const char* instructions : kInstructions) {
    const test::Instructions scope(instructions);
    std::array<float, 3> c{};
    kernels::gemm({.m = 3,
                   .n = 1,
                   .k = 1,
                   .a = {a.data(), 1, 1},
                   .b = {b.data(), 1, 1},
                   .c = c.data(),
                   .c_row = 1,
                   .relu = true});
    CHECK(c[0] == 0);
    CHECK(c[1] == 6);
    CHECK(std::isnan(c[2]));
  }
}

}  // namespace composer::gemm_test
