#include "composer/step/outside_leaves.h"

#include <unordered_set>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

namespace composer {

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

}  // namespace composer
