#pragma once
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/optim/optimizer.h"

namespace composer::tests {

inline const std::vector<std::vector<std::int64_t>> kShapes = {{33, 17}, {17}, {4, 3, 3, 3}, {1}, {}, {260, 300}};

inline optim::NamedParameters random_parameters(at::ScalarType type, std::uint64_t seed = 1) {
  at::manual_seed(seed);
  optim::NamedParameters list;
  for (std::size_t i = 0; i < kShapes.size(); ++i)
    list.push_back({"layer" + std::to_string(i) + (kShapes[i].size() < 2 ? ".bias" : ".weight"),
                    at::randn(kShapes[i], type).set_requires_grad(true)});
  return list;
}

inline std::vector<at::Tensor> tensors_of(const optim::NamedParameters& list) {
  std::vector<at::Tensor> tensors;
  for (const auto& one : list) tensors.push_back(one.tensor);
  return tensors;
}

// The same gradients for the same seed and step, whatever the memory layout.
inline void set_gradients(const std::vector<at::Tensor>& parameters, std::uint64_t seed) {
  at::manual_seed(1000 + seed);
  for (at::Tensor parameter : parameters) {
    const at::Tensor values = at::randn(parameter.sizes(), parameter.options().requires_grad(false));
    parameter.mutable_grad() = at::empty_like(parameter, at::TensorOptions().requires_grad(false)).copy_(values);
  }
}

inline void train(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters, int from, int to) {
  for (int i = from; i < to; ++i) {
    set_gradients(parameters, static_cast<std::uint64_t>(i));
    optimizer.step();
  }
}

// The largest difference in shares of 1 + |value|.
inline double difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const at::Tensor x = a[i].detach().to(at::kDouble), y = b[i].detach().to(at::kDouble);
    largest = std::max(largest, ((x - y).abs() / (1 + y.abs())).max().item<double>());
  }
  return largest;
}

inline bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i].detach(), b[i].detach())) return false;
  return true;
}

template <class Run>
std::string config_error_of(Run run) {
  try {
    run();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace composer::tests
