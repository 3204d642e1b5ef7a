#include "composer/kernels/lstm.h"

#include <algorithm>

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "composer/kernels/gemm.h"
#include "composer/kernels/micro_kernel.h"
#include "composer/util/parallel.h"

namespace composer::kernels {
namespace {

constexpr double kLstmWorthThreads = 1 << 22;  // multiply-adds
// Rows of gates (steps times samples) that stay in the cache between products; they are one part of k for gemm(). This
// determines the order of sums, so it is a part of the definition of the gradients of weights.
constexpr std::int64_t kRowsAtOnce = 256;

at::Tensor room(std::int64_t floats) { return at::detail::empty_cpu({floats}, at::TensorOptions(at::kFloat)); }
float* floats_of(const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }

Operand rows(const float* data, std::int64_t columns) { return {data, columns, 1}; }
Operand transposed(const float* data, std::int64_t columns) { return {data, 1, columns}; }

// Maps the s-th computed step to its position, and finds the parts of the workspace.
struct Layer {
  LstmSizes sizes;
  bool reverse;

  std::int64_t step(std::int64_t s) const { return reverse ? sizes.steps - 1 - s : s; }
  std::int64_t states() const { return sizes.samples * sizes.hidden; }  // of one step
  std::int64_t gates() const { return 4 * states(); }
  std::int64_t cells_at(std::int64_t step) const { return sizes.steps * gates() + step * states(); }
  std::int64_t tanh_at(std::int64_t step) const { return cells_at(sizes.steps + step); }

  // Calls run(first s, last s + 1, lowest position in memory) for parts of the steps, in the order of s.
  template <class Run>
  void for_steps(const Run& run) const {
    const std::int64_t count = parts();
    for (std::int64_t part = 0; part < count; ++part) visit(part, run);
  }
  template <class Run>
  void for_steps_backwards(const Run& run) const {
    for (std::int64_t part = parts() - 1; part >= 0; --part) visit(part, run);
  }

  // Calls run(first sample, samples) for parts of the samples, in parallel if it is worth it: a thread processes
  // several steps without waiting for others.
  template <class Run>
  void for_samples(const Run& run) const {
    const double work = static_cast<double>(steps_at_once()) * static_cast<double>(gates() * sizes.hidden);
    const std::int64_t most = work < kLstmWorthThreads ? 1 : at::get_num_threads();
    const std::int64_t tasks = std::min(most, sizes.samples);
    if (tasks == 1 || at::in_parallel_region()) return run(0, sizes.samples);
    parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
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

// The backward pass. It processes Layer::steps_at_once() steps at a time.
class Backward {
 public:
  Backward(const LstmSizes& sizes, const LstmOperands& operands, const float* output, const float* workspace,
           const LstmGradients& gradients, const LstmOperandGradients& results)
      : kernels_(micro_kernels()),
        layer_{.sizes = sizes, .reverse = operands.reverse},
        operands_(operands),
        output_(output),
        workspace_(workspace),
        gradients_(gradients),
        results_(results),
        gates_room_(room(layer_.steps_at_once() * layer_.gates())),
        packed_(room(packed_floats(sizes.hidden, wide_))),
        ones_(room(results.bias ? layer_.steps_at_once() * sizes.samples : 0)),
        d_gates_(floats_of(gates_room_)) {
    pack(rows(operands.w_hh, hidden_), hidden_, wide_, floats_of(packed_));
    std::fill_n(floats_of(ones_), ones_.numel(), 1.0F);
  }

  void run() {
    begin();
    bool first = true;
    layer_.for_steps_backwards([&](std::int64_t from, std::int64_t to, std::int64_t lowest) {
      layer_.for_samples([&](std::int64_t sample, std::int64_t samples) {
        for (std::int64_t s = to - 1; s >= from; --s) step(s, lowest, sample, samples);
      });
      add_hidden_weights(from, to, lowest, first);
      add_others((to - from) * layer_.sizes.samples, lowest, first);
      first = false;
    });
  }

 private:
  // Initialises the gradients of h and c, which are stored in results_.hx and results_.cx during the pass.
  void begin() const {
    const std::int64_t states = layer_.states();
    const float* d_last =
        gradients_.output ? gradients_.output + layer_.step(layer_.sizes.steps - 1) * states : nullptr;
    for (std::int64_t i = 0; i < states; ++i) {
      results_.hx[i] = (d_last ? d_last[i] : 0) + (gradients_.hy ? gradients_.hy[i] : 0);
      results_.cx[i] = gradients_.cy ? gradients_.cy[i] : 0;
    }
  }

  // Processes one step of some samples; called by several threads.
  void step(std::int64_t s, std::int64_t lowest, std::int64_t sample, std::int64_t samples) const {
    const std::int64_t at = sample * hidden_, states = layer_.states();
    const std::int64_t step = layer_.step(s), before = s > 0 ? layer_.step(s - 1) : 0;
    float* d = d_gates_ + (step - lowest) * layer_.gates() + sample * wide_;
    kernels_.cell_backward({.rows = samples,
                            .hidden = hidden_,
                            .gates = workspace_ + step * layer_.gates() + sample * wide_,
                            .before = (s > 0 ? workspace_ + layer_.cells_at(before) : operands_.cx) + at,
                            .tanh = workspace_ + layer_.tanh_at(step) + at,
                            .d_output = results_.hx + at,
                            .d_cells = results_.cx + at,
                            .d_gates = d});
    gemm({.m = samples,
          .n = hidden_,
          .k = wide_,
          .a = rows(d, wide_),
          .b = {},
          .c = results_.hx + at,
          .c_row = hidden_,
          .plus = s > 0 && gradients_.output ? gradients_.output + before * states + at : nullptr,
          .plus_row = hidden_,
          .packed = floats_of(packed_)});
  }

  // Adds d^T of to `to`, for `count` rows from `row` of the part on. If `first`, replaces the old value.
  void add_weight(std::int64_t row, std::int64_t count, const float* of, std::int64_t columns, bool first,
                  float* to) const {
    if (count == 0) return;
    gemm({.m = wide_,
          .n = columns,
          .k = count,
          .a = transposed(d_gates_ + row * wide_, wide_),
          .b = rows(of, columns),
          .c = to,
          .c_row = columns,
          .plus = first ? nullptr : to,
          .plus_row = columns});
  }

  // The hidden state before the first step is hx, and before any other step the output of its neighbour.
  void add_hidden_weights(std::int64_t from, std::int64_t to, std::int64_t lowest, bool first) const {
    const std::int64_t samples = layer_.sizes.samples, steps = to - from;
    const std::int64_t follow = from == 0 ? steps - 1 : steps;  // neighbours
    const std::int64_t begin = from == 0 && !operands_.reverse ? 1 : 0;
    const float* of = output_ + (lowest + begin + (operands_.reverse ? 1 : -1)) * layer_.states();
    add_weight(begin * samples, follow * samples, of, hidden_, first, results_.w_hh);
    if (from == 0)
      add_weight((operands_.reverse ? steps - 1 : 0) * samples, samples, operands_.hx, hidden_, first && follow == 0,
                 results_.w_hh);
  }

  // Of the input and of what it is multiplied by, and of the bias.
  void add_others(std::int64_t count, std::int64_t lowest, bool first) const {
    const std::int64_t inputs = layer_.sizes.inputs, at = lowest * layer_.sizes.samples * inputs;
    add_weight(0, count, operands_.input + at, inputs, first, results_.w_ih);
    if (results_.bias)
      gemm({.m = 1,
            .n = wide_,
            .k = count,
            .a = rows(floats_of(ones_), count),
            .b = rows(d_gates_, wide_),
            .c = results_.bias,
            .c_row = wide_,
            .plus = first ? nullptr : results_.bias,
            .plus_row = wide_});
    if (results_.input)
      gemm({.m = count,
            .n = inputs,
            .k = wide_,
            .a = rows(d_gates_, wide_),
            .b = rows(operands_.w_ih, inputs),
            .c = results_.input + at,
            .c_row = inputs});
  }

  const MicroKernels& kernels_;
  const Layer layer_;
  const LstmOperands& operands_;
  const float *output_, *workspace_;
  const LstmGradients& gradients_;
  const LstmOperandGradients& results_;
  const std::int64_t hidden_ = layer_.sizes.hidden, wide_ = 4 * hidden_;
  const at::Tensor gates_room_, packed_, ones_;
  float* const d_gates_;  // of the steps at hand
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
  pack(transposed(operands.w_hh, hidden), wide, hidden, floats_of(packed));
  const auto cells_of = [&](std::int64_t step) {
    return keeps ? results.workspace + layer.cells_at(step) : floats_of(own) + layer.steps_at_once() * layer.gates();
  };
  layer.for_steps([&](std::int64_t from, std::int64_t to, std::int64_t lowest) {
    float* all_gates = keeps ? results.workspace + lowest * layer.gates() : floats_of(own);
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
              .packed = floats_of(packed)});
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
  Backward(sizes, operands, output, workspace, gradients, results).run();
}

}  // namespace composer::kernels
