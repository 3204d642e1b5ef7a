#include "composer/kernels/lstm.h"

#include <algorithm>

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "composer/kernels/gemm.h"
#include "composer/kernels/micro_kernel.h"

namespace composer::kernels {
namespace {

constexpr double kWorthThreads = 1 << 22;  // multiply-adds
// Rows of gates (steps times samples) that stay in the cache from one product to the next. That is a part of k for
// gemm(). Part of the definition of the gradients of weights, because it is the order of their sums.
constexpr std::int64_t kRowsAtOnce = 256;

at::Tensor room(std::int64_t floats) { return at::detail::empty_cpu({floats}, at::TensorOptions(at::kFloat)); }
float* data(const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }

Operand rows(const float* data, std::int64_t columns) { return {data, columns, 1}; }
Operand transposed(const float* data, std::int64_t columns) { return {data, 1, columns}; }

// Which step is the s-th that is computed, and where the parts of the workspace are.
struct Layer {
  LstmSizes sizes;
  bool reverse;

  std::int64_t step(std::int64_t s) const { return reverse ? sizes.steps - 1 - s : s; }
  std::int64_t states() const { return sizes.samples * sizes.hidden; }  // of a step
  std::int64_t gates() const { return 4 * states(); }
  std::int64_t cells_at(std::int64_t step) const { return sizes.steps * gates() + step * states(); }
  std::int64_t tanh_at(std::int64_t step) const { return cells_at(sizes.steps + step); }

  // Calls run(first s, last s + 1, the first of these steps in memory) for parts of the steps, in the order of s.
  template <class Run>
  void for_steps(const Run& run) const {
    const std::int64_t count = parts();
    for (std::int64_t part = 0; part < count; ++part) visit(part, run);
  }
  template <class Run>
  void for_steps_backwards(const Run& run) const {
    for (std::int64_t part = parts() - 1; part >= 0; --part) visit(part, run);
  }

  // Calls run(first sample, samples) for parts of the samples, on threads if it is worth it: a thread goes through some
  // steps without waiting for another.
  template <class Run>
  void for_samples(const Run& run) const {
    const double work = static_cast<double>(steps_at_once()) * static_cast<double>(gates() * sizes.hidden);
    const std::int64_t most = work < kWorthThreads ? 1 : at::get_num_threads();
    const std::int64_t tasks = std::min(most, sizes.samples);
    if (tasks == 1 || at::in_parallel_region()) return run(0, sizes.samples);
    at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t from = sizes.samples * task / tasks;
        run(from, sizes.samples * (task + 1) / tasks - from);
      }
    });
  }

  std::int64_t steps_at_once() const {
    return std::min(sizes.steps, std::max(std::int64_t{1}, kRowsAtOnce / sizes.samples));
  }

 private:
  std::int64_t parts() const { return (sizes.steps + steps_at_once() - 1) / steps_at_once(); }
  template <class Run>
  void visit(std::int64_t part, const Run& run) const {
    const std::int64_t from = part * steps_at_once(), to = std::min(sizes.steps, from + steps_at_once());
    run(from, to, reverse ? step(to - 1) : from);
  }
};

}  // namespace

std::int64_t lstm_workspace_floats(const LstmSizes& sizes) { return sizes.steps * sizes.samples * sizes.hidden * 6; }

void lstm_forward(const LstmSizes& sizes, const LstmOperands& operands, const float* bias, const LstmResults& results) {
  const MicroKernels& kernels = micro_kernels();
  const Layer layer{.sizes = sizes, .reverse = operands.reverse};
  const std::int64_t hidden = sizes.hidden, wide = 4 * hidden;
  // Without a workspace, the gates and cells of a part replace those before.
  const bool keeps = results.workspace != nullptr;
  const at::Tensor own = keeps ? at::Tensor() : room(layer.steps_at_once() * layer.gates() + layer.states());
  const at::Tensor packed = room(packed_floats(wide, hidden));
  pack(transposed(operands.w_hh, hidden), wide, hidden, data(packed));
  const auto cells_of = [&](std::int64_t step) {
    return keeps ? results.workspace + layer.cells_at(step) : data(own) + layer.steps_at_once() * layer.gates();
  };
  layer.for_steps([&](std::int64_t from, std::int64_t to, std::int64_t lowest) {
    float* all_gates = keeps ? results.workspace + lowest * layer.gates() : data(own);
    gemm({.m = (to - from) * sizes.samples,
          .n = wide,
          .k = sizes.inputs,
          .a = rows(operands.input + lowest * sizes.samples * sizes.inputs, sizes.inputs),
          .b = transposed(operands.w_ih, sizes.inputs),
          .c = all_gates,
          .c_row = wide,
          .plus = bias});
    layer.for_samples([&](std::int64_t first, std::int64_t samples) {
      const std::int64_t at = first * hidden;
      for (std::int64_t s = from; s < to; ++s) {
        const std::int64_t step = layer.step(s);
        float* gates = all_gates + (step - lowest) * layer.gates() + first * wide;
        gemm({.m = samples,
              .n = wide,
              .k = hidden,
              .a = rows(s > 0 ? results.output + layer.step(s - 1) * layer.states() + at : operands.hx + at, hidden),
              .b = {},
              .c = gates,
              .c_row = wide,
              .plus = gates,
              .plus_row = wide,
              .packed = data(packed)});
        kernels.cell_forward({.rows = samples,
                              .hidden = hidden,
                              .gates = gates,
                              .before = s > 0 ? cells_of(layer.step(s - 1)) + at : operands.cx + at,
                              .cells = cells_of(step) + at,
                              .tanh = keeps ? results.workspace + layer.tanh_at(step) + at : nullptr,
                              .output = results.output + step * layer.states() + at});
      }
    });
  });
  const std::int64_t last = layer.step(sizes.steps - 1);
  std::copy_n(results.output + last * layer.states(), layer.states(), results.hy);
  std::copy_n(cells_of(last), layer.states(), results.cy);
}

void lstm_backward(const LstmSizes& sizes, const LstmOperands& operands, const float* output, const float* workspace,
                   const LstmGradients& gradients, const LstmOperandGradients& results) {
  const MicroKernels& kernels = micro_kernels();
  const Layer layer{.sizes = sizes, .reverse = operands.reverse};
  const std::int64_t hidden = sizes.hidden, wide = 4 * hidden, states = layer.states();
  const at::Tensor gates_room = room(layer.steps_at_once() * layer.gates()), packed = room(packed_floats(hidden, wide));
  float* d_gates = data(gates_room);  // of one part
  pack(rows(operands.w_hh, hidden), hidden, wide, data(packed));
  const at::Tensor ones = room(results.bias ? layer.steps_at_once() * sizes.samples : 0);
  std::fill_n(data(ones), ones.numel(), 1.0F);
  // The gradients of h and c of the step at hand are in the places of those of hx and cx.
  float *d_h = results.hx, *d_c = results.cx;
  const float* d_last = gradients.output ? gradients.output + layer.step(sizes.steps - 1) * states : nullptr;
  for (std::int64_t i = 0; i < states; ++i) {
    d_h[i] = (d_last ? d_last[i] : 0) + (gradients.hy ? gradients.hy[i] : 0);
    d_c[i] = gradients.cy ? gradients.cy[i] : 0;
  }
  // to = plus + d^T of, of `count` rows that begin at `row` of the part
  const auto add_weight = [&](std::int64_t row, std::int64_t count, const float* of, std::int64_t columns, bool first,
                              float* to) {
    if (count > 0)
      gemm({.m = wide,
            .n = columns,
            .k = count,
            .a = transposed(d_gates + row * wide, wide),
            .b = rows(of, columns),
            .c = to,
            .c_row = columns,
            .plus = first ? nullptr : to,
            .plus_row = columns});
  };
  bool first = true;
  layer.for_steps_backwards([&](std::int64_t from, std::int64_t to, std::int64_t lowest) {
    layer.for_samples([&](std::int64_t sample, std::int64_t samples) {
      const std::int64_t at = sample * hidden;
      for (std::int64_t s = to - 1; s >= from; --s) {
        const std::int64_t step = layer.step(s), before = s > 0 ? layer.step(s - 1) : 0;
        float* d = d_gates + (step - lowest) * layer.gates() + sample * wide;
        kernels.cell_backward({.rows = samples,
                               .hidden = hidden,
                               .gates = workspace + step * layer.gates() + sample * wide,
                               .before = (s > 0 ? workspace + layer.cells_at(before) : operands.cx) + at,
                               .tanh = workspace + layer.tanh_at(step) + at,
                               .d_output = d_h + at,
                               .d_cells = d_c + at,
                               .d_gates = d});
        gemm({.m = samples,
              .n = hidden,
              .k = wide,
              .a = rows(d, wide),
              .b = {},
              .c = d_h + at,
              .c_row = hidden,
              .plus = s > 0 && gradients.output ? gradients.output + before * states + at : nullptr,
              .plus_row = hidden,
              .packed = data(packed)});
      }
    });
    const std::int64_t steps = to - from, count = steps * sizes.samples;
    add_weight(0, count, operands.input + lowest * sizes.samples * sizes.inputs, sizes.inputs, first, results.w_ih);
    // The first step of all follows hx, every other one the output of its neighbour.
    const std::int64_t follow = from == 0 ? steps - 1 : steps;  // neighbours
    const std::int64_t begin = from == 0 && !operands.reverse ? 1 : 0;
    if (follow > 0)
      add_weight(begin * sizes.samples, follow * sizes.samples,
                 output + (lowest + begin + (operands.reverse ? 1 : -1)) * states, hidden, first, results.w_hh);
    if (from == 0)
      add_weight((operands.reverse ? steps - 1 : 0) * sizes.samples, sizes.samples, operands.hx, hidden,
                 first && follow == 0, results.w_hh);
    if (results.bias)
      gemm({.m = 1,
            .n = wide,
            .k = count,
            .a = rows(data(ones), count),
            .b = rows(d_gates, wide),
            .c = results.bias,
            .c_row = wide,
            .plus = first ? nullptr : results.bias,
            .plus_row = wide});
    if (results.input)
      gemm({.m = count,
            .n = sizes.inputs,
            .k = wide,
            .a = rows(d_gates, wide),
            .b = rows(operands.w_ih, sizes.inputs),
            .c = results.input + lowest * sizes.samples * sizes.inputs,
            .c_row = sizes.inputs});
    first = false;
  });
}

}  // namespace composer::kernels
