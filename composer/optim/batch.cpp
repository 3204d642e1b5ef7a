#include "composer/optim/batch.h"

#include <algorithm>

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "composer/util/parallel.h"

namespace composer::optim::detail {

std::vector<at::Tensor> Batch::column(std::size_t i) const {
  std::vector<at::Tensor> column;
  if (!states.empty() && !states.front()->tensors[i].defined()) return column;
  column.reserve(states.size());
  for (const ParameterState* state : states) column.push_back(state->tensors[i]);
  return column;
}

std::vector<at::Tensor> Batch::count_step() const {
  std::vector<at::Tensor> steps = column(0);
  if (found_inf.defined())
    at::_foreach_add_(steps, at::rsub(found_inf, 1));
  else
    at::_foreach_add_(steps, 1);
  return steps;
}

void Batch::add(const at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state) {
  p.push_back(parameter);
  g.push_back(gradient);
  states.push_back(&state);
}

void Batch::clear() {
  p.clear();
  g.clear();
  states.clear();
  found_inf.reset();
}

Restore::Restore(const Batch& batch, const at::Tensor& found_inf) : found_(found_inf.to(at::kBool)), now_(batch.p) {
  for (const ParameterState* state : batch.states)
    for (const at::Tensor& tensor : state->tensors)
      if (tensor.defined()) now_.push_back(tensor);
  for (const at::Tensor& tensor : now_) before_.push_back(tensor.clone());
}

void Restore::where_found() const {
  for (std::size_t i = 0; i < now_.size(); ++i) now_[i].copy_(at::where(found_, before_[i], now_[i]));
}

Batch& Scratch::batch_for(const at::Tensor& parameter, bool dense) {
  for (Batch& batch : batches) {
    if (batch.p.empty()) {
      batch.dense = dense;
      return batch;
    }
    if (batch.dense == dense && batch.p.front().device() == parameter.device() &&
        batch.p.front().scalar_type() == parameter.scalar_type())
      return batch;
  }
  batches.emplace_back().dense = dense;
  return batches.back();
}

Scratch::Clear::~Clear() {
  scratch_.slices.clear();
  for (Batch& batch : scratch_.batches) batch.clear();
  scratch_.kept.clear();
}

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  const at::IntArrayRef left = a.strides(), right = b.strides();
  if (left == right) return true;
  for (std::size_t d = 0; d < left.size(); ++d)
    if (left[d] != right[d] && a.size(static_cast<std::int64_t>(d)) != 1) return false;
  return true;
}

void update_slices(std::span<const Slice> slices) {
  constexpr std::int64_t kWorthAThread = 32768;
  std::int64_t total = 0;
  for (const Slice& slice : slices) total += slice.n;
  parallel_for(0, total, kWorthAThread, [slices](std::int64_t begin, std::int64_t end) {
    std::int64_t first = 0;  // index of the slice's first element among all elements
    for (const Slice& slice : slices) {
      if (first >= end) break;
      const std::int64_t from = std::max(begin, first), to = std::min(end, first + slice.n);
      if (from < to) update_elements(slice, from - first, to - first);
      first += slice.n;
    }
  });
}

std::vector<at::Tensor> corrections(const std::vector<at::Tensor>& steps, double beta) {
  std::vector<at::Tensor> list;
  for (const at::Tensor& step : steps) list.push_back(at::rsub(at::pow(beta, step.to(at::kDouble)), 1));
  return list;
}

at::Tensor step_count(const at::Tensor& parameter) {
  return at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(parameter.device()));
}

}  // namespace composer::optim::detail
