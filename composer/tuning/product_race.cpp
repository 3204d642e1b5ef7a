#include "composer/tuning/product_race.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <new>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/mkldnn_rnn_layer_backward.h>
#include <ATen/ops/mm.h>

#include "composer/tuning/trials.h"
#include "composer/util/processors.h"

namespace composer {
namespace {

using kernels::Layout;
using kernels::ProductShape;
using kernels::ProductTable;

constexpr int kRaceMostRounds = 15, kRaceLeastRounds = 2;
constexpr double kAllSeconds = 10;  // for all shapes, if more is not given
// Elements in operands and result; of products of a large batch, only some are timed.
constexpr double kMostFloats = 1 << 24;
constexpr double kRaceSeconds = 0.05;         // for one shape, once the fewest rounds are done
constexpr double kRaceTrialSeconds = 0.0003;  // short products are repeated for this long
constexpr int kMostProducts = 200;            // in a trial

at::Tensor operand(std::int64_t batch, std::int64_t rows, std::int64_t columns, Layout layout, at::ScalarType type) {
  const auto filled = [batch, type](std::int64_t rows, std::int64_t columns) {
    return at::full({batch, rows, columns}, 0.5, type);
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
    case Layout::LSTM:
    case Layout::ATTENTION:
      matrices = filled(rows, 2 * columns).slice(2, 0, 2 * columns, 2);
      break;
  }
  return batch == 1 ? matrices.select(0, 0) : matrices;
}

// Forward and backward of one layer, in the form in which torch::nn::LSTM calls them.
std::function<void()> lstm_of(const ProductShape& shape) {
  const std::int64_t steps = shape.batch, samples = shape.m, hidden = shape.n, inputs = shape.k;
  const auto filled = [](at::IntArrayRef sizes) { return at::full(sizes, 0.01, at::kFloat); };
  const at::Tensor input = filled({steps, samples, inputs}), w_ih = filled({4 * hidden, inputs}),
                   w_hh = filled({4 * hidden, hidden}), bias = filled({4 * hidden}), hx = filled({samples, hidden}),
                   cx = filled({samples, hidden}), gradient = filled({steps, samples, hidden});
  input.requires_grad_();
  return [=] {
    constexpr std::int64_t kLstm = 2, kLayers = 1;
    const auto [output, hy, cy, workspace] = [&] {
      const at::AutoGradMode with_workspace(true);
      return at::mkldnn_rnn_layer(input, w_ih, w_hh, bias, bias, hx, cx, /*reverse=*/false, /*batch_sizes=*/{}, kLstm,
                                  hidden, kLayers, /*has_biases=*/true, /*bidirectional=*/false, /*batch_first=*/false,
                                  /*train=*/true);
    }();
    at::mkldnn_rnn_layer_backward(input, w_ih, w_hh, bias, bias, hx, cx, output, hy, cy, gradient, {}, {},
                                  /*reverse=*/false, kLstm, hidden, kLayers, /*has_biases=*/true, /*train=*/true,
                                  /*bidirectional=*/false, /*batch_sizes=*/{}, /*batch_first=*/false, workspace);
  };
}

// Forward and backward of attention. The rows of a sample's heads lie side by side, as projections leave them.
std::function<void()> attention_of(const ProductShape& shape) {
  const auto heads = [&](std::int64_t rows) {
    return at::full({1, rows, shape.batch, shape.k}, 0.1, at::kFloat).transpose(1, 2);
  };
  const at::Tensor q = heads(shape.m), k = heads(shape.n), v = heads(shape.n), gradient = heads(shape.m);
  return [=, causal = shape.adds] {
    constexpr double kDropout = 0;
    const auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, kDropout, causal);
    at::_scaled_dot_product_flash_attention_for_cpu_backward(gradient, q, k, v, output, logsumexp, kDropout, causal);
  };
}

// A function that computes a product of this shape once per call.
std::function<void()> product_of(const ProductShape& shape) {
  if (shape.a == Layout::LSTM) return lstm_of(shape);
  if (shape.a == Layout::ATTENTION) return attention_of(shape);
  const at::Tensor a = operand(shape.batch, shape.m, shape.k, shape.a, shape.type),
                   b = operand(shape.batch, shape.k, shape.n, shape.b, shape.type),
                   plus = shape.adds ? at::full({shape.n}, 0.5, shape.type) : at::Tensor();
  if (shape.batch == 1) return [=] { shape.adds ? at::addmm(plus, a, b) : at::mm(a, b); };
  return [=] { shape.adds ? at::baddbmm(plus, a, b) : at::bmm(a, b); };
}

double work(const std::pair<ProductShape, std::int64_t>& shape) {
  const auto& [s, count] = shape;
  const auto inner = s.a == Layout::LSTM        ? 12 * (s.k + s.n)  // four gates, and two gradients for each product
                     : s.a == Layout::ATTENTION ? 7 * s.k
                                                : s.k;
  return static_cast<double>(count) * static_cast<double>(s.batch) * static_cast<double>(s.m) *
         static_cast<double>(s.n) * static_cast<double>(inner);
}

double seconds_for(const std::function<void()>& product, int times) {
  const WorkClock clock;
  for (int i = 0; i < times; ++i) product();
  return clock.seconds(at::get_num_threads() == 1) / times;
}

// Races the library's kernel (the first way) against ours (the second).
Verdict race(const ProductShape& shape, const std::function<void()>& before_each) {
  ProductTable ours;
  ours.set_others(true);
  const ProductTable library;
  const std::function<void()> product = product_of(raced_shape(shape, at::get_num_threads()));
  const auto timed = [&](const ProductTable& by, int times) {
    before_each();
    const kernels::ProductScope scope(by);
    return seconds_for(product, times);
  };
  timed(ours, 1);  // the first calls prepare memory and kernels
  const int times = static_cast<int>(std::clamp(kRaceTrialSeconds / timed(library, 1), 1.0, double{kMostProducts}));
  double no_patience = 0;
  return fastest_of(
      {.changes = {0, 1}, .time = [&](std::size_t way) { return timed(way == 0 ? library : ours, times); }},
      {kRaceLeastRounds, kRaceMostRounds, kRaceSeconds}, no_patience);
}

}  // namespace

ProductShape raced_shape(ProductShape s, std::int64_t threads) {
  const bool is_attention = s.a == Layout::ATTENTION;
  const auto states = s.a == Layout::LSTM ? 12 * s.m * s.n : s.m * s.n;     // gates, cells and their gradients
  const auto floats = static_cast<double>(s.m * s.k + s.k * s.n + states);  // attention's scores cost time, not memory
  const std::int64_t least = is_attention ? std::min(s.batch, threads) : 1;
  std::int64_t most = std::clamp(static_cast<std::int64_t>(kMostFloats / floats), least, s.batch);
  if (is_attention && most < s.batch) most -= most % least;
  s.batch = most;
  return s;
}

ProductRace race_products(const std::map<ProductShape, std::int64_t>& shapes, double seconds,
                          const std::function<void()>& before_each, double& patience) {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<ProductShape, std::int64_t>> largest_first(shapes.begin(), shapes.end());
  std::ranges::stable_sort(largest_first, std::greater<>(), work);
  ProductRace result;
  const auto is_disturbed = [&](const ProductShape& shape) {
    bool own = false, disturbed = false;
    // A race may be out of memory, for libtorch's tensors or for our copies, although the step is not: the step needs
    // less.
    try {
      const Verdict verdict = race(shape, before_each);
      own = verdict.way == 1;
      disturbed = verdict.disturbed;
    } catch (const c10::Error&) {
      own = false;
    } catch (const std::bad_alloc&) {
      own = false;
    }
    result.table.set(shape, own);
    return disturbed;
  };
  const auto now = [] { return util::processor_times().wall; };
  std::deque<ProductShape> again;
  const double end = now() + std::max(kAllSeconds, seconds);
  for (const auto& [shape, count] : largest_first) {
    if (now() > end) break;
    if (is_disturbed(shape)) again.push_back(shape);
  }
  while (!again.empty() && patience > 0) {
    const double from = now();
    const ProductShape shape = again.front();
    again.pop_front();
    if (is_disturbed(shape)) again.push_back(shape);
    patience -= now() - from;
  }
  result.disturbed = !again.empty();
  return result;
}

}  // namespace composer
