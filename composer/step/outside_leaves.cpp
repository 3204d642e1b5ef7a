#include "composer/step/outside_leaves.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/step/batch_losses.h"

namespace composer {
namespace {

std::vector<at::Tensor> outside_leaves(const at::Tensor& loss, const std::vector<at::Tensor>& known) {
  using torch::autograd::Node;
  std::unordered_set<const void*> passed;  // leaves
  for (const at::Tensor& tensor : known) passed.insert(tensor.unsafeGetTensorImpl());
  std::vector<at::Tensor> outside;
  std::unordered_set<const Node*> seen;
  std::vector<Node*> open{loss.grad_fn().get()};
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (!node || !seen.insert(node).second) continue;
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node))
      if (passed.insert(leaf->variable.unsafeGetTensorImpl()).second) outside.push_back(leaf->variable);
    for (const torch::autograd::Edge& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  return outside;
}

}  // namespace

void warn_of_outside_leaves(const State& state, const Batch& whole) {
  const at::Tensor loss = total_of(state.loss);
  if (!loss.requires_grad()) return;  // the backward pass will throw, or a graph has already run it
  std::vector<at::Tensor> known = parameters(as_module(*state.model));
  for (const at::Tensor& buffer : buffers(as_module(*state.model))) known.push_back(buffer);
  for (const auto& group : state.optimizer->param_groups())
    known.insert(known.end(), group.params().begin(), group.params().end());
  for (const Batch* batch : {&whole, &state.batch})
    for (const auto& [name, tensor] : *batch) known.push_back(tensor);
  const std::vector<at::Tensor> outside = outside_leaves(loss, known);
  if (outside.empty()) return;
  constexpr std::size_t kNamed = 4;
  std::string shapes;
  for (std::size_t i = 0; i < std::min(outside.size(), kNamed); ++i)
    shapes += join(i == 0 ? "" : ", ", outside[i].sizes());
  if (outside.size() > kNamed) shapes += ", ...";
  warn(
      join("model: its loss depends on ", outside.size(), " trainable tensors that are no parameters of it (", shapes,
           "), so they are neither trained nor saved; call register_module() or register_parameter() for them, or, if ",
           "something else trains them, set_requires_grad(false) for the time of this step"));
}

}  // namespace composer
