#include "composer/step/shared_model.h"

#include <algorithm>
#include <unordered_map>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/dist/agreement.h"
#include "composer/dist/world.h"
#include "composer/step/optimizer_shards.h"

namespace composer {

void SharedModel::share_buffers() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : composer::buffers(as_module(*state_.model))) buffers.push_back(buffer.detach());
  if (!buffers.empty()) world_->broadcast(buffers);
}

void SharedModel::share() {
  const at::NoGradGuard no_grad;
  std::vector<std::string> lines;
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : named_parameters(as_module(*state_.model))) {
    lines.push_back(dist::describe_tensor(name, parameter));
    parameters.push_back(parameter.detach());
  }
  for (const auto& [name, buffer] : named_buffers(as_module(*state_.model)))
    lines.push_back(dist::describe_tensor(name, buffer));
  dist::check_same_on_all_ranks(*world_, "model", lines);
  if (!parameters.empty()) world_->broadcast(parameters);
  share_buffers();
  note_shared();
}

void SharedModel::note_shared() {
  shared_.clear();
  for (const at::Tensor& parameter : parameters(as_module(*state_.model)))
    shared_.push_back({parameter, parameter.sizes().vec(), parameter.requires_grad()});
}

void SharedModel::check(const std::vector<std::string>& lines) const {
  try {
    dist::check_same_on_all_ranks(*world_, join("model after batch ", state_.timestamp.batch), lines);
  } catch (const ConfigError& error) {
    throw ConfigError(error.what(), dist::kOneForAll);
  }
}

bool SharedModel::has_changed() {
  if (optimizer_ && optimizer_->has_changed()) return true;
  const auto is_same = [](const Shared& shared, const at::Tensor& now) {
    return shared.parameter.is_same(now) && now.sizes() == at::IntArrayRef(shared.sizes) &&
           now.requires_grad() == shared.requires_grad;
  };
  return !std::ranges::equal(shared_, parameters(as_module(*state_.model)), is_same);
}

void SharedModel::share_new() {
  const at::NoGradGuard no_grad;
  std::vector<std::string> lines;
  std::vector<at::Tensor> added;
  std::unordered_map<const c10::TensorImpl*, const Shared*> known;
  for (const Shared& shared : shared_) known.emplace(shared.parameter.unsafeGetTensorImpl(), &shared);
  for (const auto& [name, parameter] : named_parameters(as_module(*state_.model))) {
    const auto before = known.find(parameter.unsafeGetTensorImpl());
    const bool is_new = before == known.end() || parameter.sizes() != at::IntArrayRef(before->second->sizes);
    lines.push_back(join(dist::describe_tensor(name, parameter), parameter.requires_grad() ? "" : ", frozen",
                         is_new ? ", new" : ""));
    if (is_new) added.push_back(parameter.detach());
  }
  check(lines);
  if (optimizer_) optimizer_->check();
  if (!added.empty()) {
    world_->broadcast(added);
    share_buffers();
  }
  note_shared();
}

}  // namespace composer
