#include "composer/dist/reached.h"

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace composer::dist {

std::unordered_set<const void*> nodes_behind(const std::vector<at::Tensor>& outputs) {
  std::unordered_set<const void*> seen;
  std::vector<torch::autograd::Node*> left;
  const auto visit = [&](const torch::autograd::Edge& edge) {
    if (edge.function && seen.insert(edge.function.get()).second) left.push_back(edge.function.get());
  };
  std::vector<torch::autograd::Edge> roots;  // keeps the accumulators of leaves alive during the search
  for (const at::Tensor& output : outputs)
    if (output.defined() && output.requires_grad()) roots.push_back(torch::autograd::impl::gradient_edge(output));
  for (const auto& root : roots) visit(root);
  while (!left.empty()) {
    const torch::autograd::Node* node = left.back();
    left.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge);
  }
  return seen;
}

}  // namespace composer::dist
