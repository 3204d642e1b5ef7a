#include "composer/tuning/product_race.h"

#include <stdexcept>

#include "composer/kernels/gemm.h"
#include "composer/util/processors.h"
#include "tests/support/doctest.h"

namespace composer::test::product_race_test {
namespace {

using kernels::Layout, kernels::ProductShape;

std::map<ProductShape, std::int64_t> some_shapes() {
  std::map<ProductShape, std::int64_t> shapes;
  for (const Layout a : {Layout::ROWS, Layout::COLUMNS, Layout::NEITHER})
    for (const Layout b : {Layout::ROWS, Layout::COLUMNS, Layout::NEITHER})
      for (const bool adds : {false, true}) shapes[{1, 5, 6, 7, a, b, adds}] = 1;
  shapes[{3, 5, 6, 7, Layout::ROWS, Layout::COLUMNS, false}] = 2;
  shapes[{3, 5, 6, 7, Layout::COLUMNS, Layout::ROWS, true}] = 1;
  shapes[kernels::lstm_shape(4, 3, 8, 5)] = 1;
  return shapes;
}

TEST_CASE("A race computes each product as the step does, and decides about each") {
  if (!kernels::has_gemm()) return;
  const std::map<ProductShape, std::int64_t> shapes = some_shapes();
  std::int64_t trials = 0;
  double patience = 0;
  kernels::ProductTable table;
  const std::map<ProductShape, std::int64_t> seen = [&] {
    const kernels::ProductRecorder recorder;
    table = race_products(
                shapes, 0, [&] { ++trials; }, patience)
                .table;
    return recorder.shapes();
  }();
  CHECK(trials >= 4 * static_cast<std::int64_t>(shapes.size()));  // one of each way before, and two pairs
  for (const auto& [shape, count] : shapes) {
    CAPTURE(to_string(shape));
    CHECK(seen.contains(shape));
    CHECK(table.find(shape));
  }
  CHECK_FALSE(table.others());
  for (const auto& [shape, count] : seen) {
    CAPTURE(to_string(shape));
    CHECK(shapes.contains(shape));
  }
}

TEST_CASE("Long attention is raced with as many heads as threads, where the layer has them") {
  const auto heads = [](std::int64_t heads, std::int64_t rows, std::int64_t threads) {
    return raced_shape(kernels::attention_shape(heads, rows, rows, 64, /*causal=*/true), threads).batch;
  };
  CHECK(heads(32, 8192, 1) == 1);
  CHECK(heads(32, 8192, 16) == 16);
  CHECK(heads(8, 8192, 16) == 8);
  CHECK(heads(64, 128, 16) == 64);
  CHECK(heads(18, 900, 16) == 18);   // all fit
  CHECK(heads(100, 900, 16) == 16);  // 18 would leave most of the threads idle in the second turn
  CHECK(heads(100, 900, 6) == 18);
  const ProductShape products{100, 8192, 8192, 64, Layout::ROWS, Layout::ROWS, false};
  CHECK(raced_shape(products, 16).batch == 1);
}

TEST_CASE("Products that other programs have disturbed are raced again, as long as there is patience") {
  if (!kernels::has_gemm()) return;
  const std::map<ProductShape, std::int64_t> shapes = {{{1, 5, 6, 7, Layout::ROWS, Layout::ROWS, false}, 1},
                                                       {{1, 6, 5, 7, Layout::ROWS, Layout::ROWS, false}, 1}};
  const auto trials_with = [&](double until, double patience) {
    util::ProcessorTimes times{.processors = 2};
    const util::ProcessorTimesAre made_up([&times, until] {  // a hundredth of a second passes at each look
      times.wall += 0.01;
      if (times.wall < until) times.stolen += 0.02;
      return times;
    });
    int trials = 0;
    const ProductRace race = race_products(
        shapes, 0, [&trials] { ++trials; }, patience);
    for (const auto& [shape, count] : shapes) CHECK(race.table.find(shape));
    CHECK(race.disturbed == (until > 100));
    return trials;
  };
  const int quiet = trials_with(0, 1);
  trials_with(1000, 0);
  const int busy_at_first = trials_with(0.2, 1);
  CHECK(busy_at_first > quiet);
  CHECK(trials_with(1000, 1) > busy_at_first);
}

TEST_CASE("What is thrown before a trial ends the race") {
  if (!kernels::has_gemm()) return;
  int trials = 0;
  const auto stop = [&trials] {
    if (++trials == 7) throw std::runtime_error("enough");
  };
  double patience = 0;
  CHECK_THROWS_WITH(race_products(some_shapes(), 0, stop, patience), "enough");
  CHECK(trials == 7);
}

}  // namespace
}  // namespace composer::test::product_race_test
