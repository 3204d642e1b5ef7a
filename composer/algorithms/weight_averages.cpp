#include "composer/algorithms/weight_averages.h"

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/empty_like.h>

#include "composer/core/model_access.h"
#include "composer/core/state_dict.h"
#include "composer/formats/weights.h"

namespace composer::algorithms {
namespace {

void copy(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  if (!to.empty()) at::_foreach_copy_(to, from, /*non_blocking=*/true);
}

bool is_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.device() == b.device() && a.scalar_type() == b.scalar_type() && a.strides() == b.strides();
}

bool is_expanded(const at::Tensor& tensor) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) return true;
  return false;
}

// Does not use _foreach_lerp_: the average of two equal infinities, as in a mask, must be that infinity.
void move_to(const std::vector<at::Tensor>& averages, const std::vector<at::Tensor>& values, double share) {
  if (averages.empty() || share == 0) return;
  if (share == 1) return copy(averages, values);
  at::_foreach_mul_(averages, 1 - share);
  at::_foreach_add_(averages, values, share);
}

}  // namespace

void WeightAverages::begin(const torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  std::unordered_set<const void*> done;  // a weight with two names is copied once
  for (const at::Tensor& parameter : parameters(model))
    if (!parameter.requires_grad()) done.insert(parameter.unsafeGetTensorImpl());
  by_name_.clear();
  for (const auto& [name, tensor] : composer::state_dict(model))
    if (!is_expanded(tensor) && done.insert(tensor.unsafeGetTensorImpl()).second)
      by_name_.emplace_back(name, tensor.clone());
  find(model);
}

void WeightAverages::find(const torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  std::unordered_map<std::string, at::Tensor> ours;
  for (auto& [name, tensor] : composer::state_dict(model)) ours.emplace(name, tensor);
  averages_ = values_ = counts_ = counted_ = {};
  for (auto& [name, average] : by_name_) {
    const auto found = ours.find(name);
    if (found == ours.end()) continue;
    const at::Tensor& value = found->second;
    if (average.sizes() == value.sizes() && !is_alike(average, value)) average = at::empty_like(value).copy_(average);
    const bool is_averaged = value.is_floating_point() || value.is_complex();
    (is_averaged ? averages_ : counts_).push_back(average);
    (is_averaged ? values_ : counted_).push_back(value);
  }
}

void WeightAverages::move(const torch::nn::Module& model, double share) {
  const at::NoGradGuard no_grad;
  if (averages_.empty() && counts_.empty()) find(model);
  move_to(averages_, values_, share);
  copy(counts_, counted_);
}

void WeightAverages::put_into(const torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  find(model);
  copy(values_, averages_);
  copy(counted_, counts_);
}

void WeightAverages::visit_state(StateVisitor& visit) {
  if (!visit.is_loading()) {
    for (auto& [name, average] : by_name_) visit(name, average);
    return;
  }
  std::map<std::string, at::Tensor> before(by_name_.begin(), by_name_.end());  // needed for their devices
  by_name_.clear();
  for (const std::string& name : visit.names()) visit(name, by_name_.emplace_back(name, before[name]).second);
  averages_ = values_ = counts_ = counted_ = {};
}

}  // namespace composer::algorithms
