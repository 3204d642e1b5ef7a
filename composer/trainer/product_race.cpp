#include "composer/trainer/product_race.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include "composer/trainer/trials.h"

namespace composer {
namespace {

using kernels::Layout;
using kernels::ProductShape;
using kernels::ProductTable;

constexpr int kMostRounds = 15, kLeastRounds = 5;
constexpr double kSeconds = 0.05;         // for one shape, once there are the least rounds
constexpr double kTrialSeconds = 0.0003;  // short products are repeated for so long
constexpr int kMostProducts = 200;        // in a trial
constexpr double kMuchFaster = 0.8;

at::Tensor operand(std::int64_t batch, std::int64_t rows, std::int64_t columns, Layout layout) {
  const auto filled = [batch](std::int64_t rows, std::int64_t columns) {
    return at::full({batch, rows, columns}, 0.5, at::kFloat);
  };
  at::Tensor matrices;
  switch (layout) {
    case Layout::ROWS:
      matrices = filled(rows, columns);
      break;
    case Layout::COLUMNS:
      matrices = filled(columns, rows).transpose(1, 2);
      break;
    case Layout::NEITHER:
      matrices = filled(rows, 2 * columns).slice(2, 0, 2 * columns, 2);
      break;
  }
  return batch == 1 ? matrices.select(0, 0) : matrices;
}

// Computes a product of this shape once each time it is called.
std::function<void()> product_of(const ProductShape& shape) {
  const at::Tensor a = operand(shape.batch, shape.m, shape.k, shape.a),
                   b = operand(shape.batch, shape.k, shape.n, shape.b),
                   plus = shape.adds ? at::full({shape.n}, 0.5, at::kFloat) : at::Tensor();
  if (shape.batch == 1) return [=] { shape.adds ? at::addmm(plus, a, b) : at::mm(a, b); };
  return [=] { shape.adds ? at::baddbmm(plus, a, b) : at::bmm(a, b); };
}

double seconds_for(const std::function<void()>& product, int times) {
  const auto from = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) product();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count() / times;
}

}  // namespace

ProductTable race_products(const std::map<ProductShape, std::int64_t>& shapes) {
  const at::NoGradGuard no_grad;
  ProductTable table, ours;
  ours.set_others(true);
  const ProductTable library;
  bool much_faster = !shapes.empty();
  for (const auto& [shape, count] : shapes) {
    const std::function<void()> product = product_of(shape);
    const auto timed = [&product](const ProductTable& by, int times) {
      const kernels::ProductScope scope(by);
      return seconds_for(product, times);
    };
    const auto from = std::chrono::steady_clock::now();
    for (const ProductTable* by : {&std::as_const(ours), &library}) timed(*by, 2);  // the first ones prepare memory and kernels
    const int times = static_cast<int>(std::clamp(kTrialSeconds / timed(library, 1), 1.0, double{kMostProducts}));
    Trials trials;
    for (int round = 0; round < kMostRounds; ++round) {
      const bool ours_first = round % 2 == 1;
      if (ours_first) trials.other.push_back(timed(ours, times));
      trials.now.push_back(timed(library, times));
      if (!ours_first) trials.other.push_back(timed(ours, times));
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - from;
      if (round + 1 >= kLeastRounds && passed.count() > kSeconds) break;
    }
    const bool own = other_is_faster(trials);
    table.set(shape, own);
    much_faster = much_faster && own && median(trials.other) < kMuchFaster * median(trials.now);
  }
  table.set_others(much_faster);
  return table;
}

}  // namespace composer
