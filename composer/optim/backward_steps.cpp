#include "composer/optim/backward_steps.h"

#include <algorithm>
#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "composer/core/error.h"
#include "composer/util/recompute.h"

namespace composer::optim::detail {

// Runs when a parameter's gradient is complete. There is room for one hook only, so it runs the one before it, too.
struct BackwardSteps::Hook final : torch::autograd::PostAccumulateGradHook {
  using Other = std::unique_ptr<torch::autograd::PostAccumulateGradHook>;
  Hook(std::shared_ptr<BackwardSteps*> to, std::size_t in_group, std::size_t at_index, Other other)
      : owner(std::move(to)), group(in_group), index(at_index), before(std::move(other)) {}
  void operator()(const at::Tensor& parameter) override {
    if (before) (*before)(parameter);
    if (*owner) (*owner)->complete(group, index);
  }

  std::shared_ptr<BackwardSteps*> owner;
  std::size_t group, index;
  Other before;
};

BackwardSteps::BackwardSteps(std::string who, Update update, Name name)
    : who_(std::move(who)),
      update_(std::move(update)),
      name_(std::move(name)),
      self_(std::make_shared<BackwardSteps*>(this)) {}

BackwardSteps::~BackwardSteps() { *self_ = nullptr; }

void BackwardSteps::watch(const at::Tensor& parameter, std::size_t group, std::size_t index) {
  if (group >= completions_.size()) completions_.resize(group + 1);
  if (index >= completions_[group].size()) completions_[group].resize(index + 1);
  Hook::Other before;
  if (torch::autograd::impl::get_autograd_meta(parameter))
    before = std::move(torch::autograd::impl::post_acc_grad_hooks(parameter));
  torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                 std::make_unique<Hook>(self_, group, index, std::move(before)));
}

// Leaves a hook that came later; ours below it does nothing once we have gone.
void BackwardSteps::release(const at::Tensor& parameter) const {
  if (!torch::autograd::impl::get_autograd_meta(parameter)) return;
  auto& present = torch::autograd::impl::post_acc_grad_hooks(parameter);
  auto* ours = dynamic_cast<Hook*>(present.get());
  if (!ours || ours->owner != self_) return;
  Hook::Other before = std::move(ours->before);
  present = std::move(before);
}

void BackwardSteps::erase(std::size_t group, std::size_t index) {
  std::vector<Completions>& all = completions_.at(group);
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(index));
}

void BackwardSteps::clear() { completions_.clear(); }

// In the first step, a parameter that a pending checkpoint() may reach again is left to finish(), which learns how
// often its gradient is completed.
void BackwardSteps::complete(std::size_t group, std::size_t index) {
  const std::lock_guard lock(mutex_);
  Completions& completions = completions_.at(group).at(index);
  const bool pending = pending_checkpoints() > 0;
  sees_checkpoints_ = sees_checkpoints_ || pending;
  if (completions.updated && sees_checkpoints_)
    throw ConfigError(
        who_, ": step_in_backward already updated ", name_(group, index),
        " in this step, but a checkpoint() segment computed another gradient for it, unlike in the first ",
        "step; set step_in_backward = false. In a loop of your own, call step() after each backward");
  ++completions.seen;
  if (completions.expected == 0 ? pending : completions.seen < completions.expected) return;
  update_(group, index);
  completions.updated = true;
}

void BackwardSteps::begin() {
  sees_checkpoints_ = false;
  for (auto& group : completions_)
    for (Completions& completions : group) completions = {.expected = completions.expected};
}

void BackwardSteps::finish() {
  for (std::size_t g = 0; g < completions_.size(); ++g)
    for (std::size_t i = 0; i < completions_[g].size(); ++i) {
      Completions& completions = completions_[g][i];
      if (completions.seen > 0 && !completions.updated) update_(g, i);
      if (sees_checkpoints_) completions.expected = std::max(completions.expected, completions.seen);
    }
  begin();
}

}  // namespace composer::optim::detail
