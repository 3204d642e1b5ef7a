// A network for tests of ranks, and gradients as values.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "composer/dist/data_parallel.h"

namespace composer::dist::test {

// Three layers, of which the last is one of two heads, and a buffer that counts forward passes.
struct SmallNet {
  explicit SmallNet(at::ScalarType dtype = at::kFloat, double offset = 0) {
    const auto make = [&](const char* name, std::int64_t rows, std::int64_t columns) {
      const double n = static_cast<double>(parameters.size()) + offset;
      const at::Tensor values = at::sin(at::arange(rows * columns, at::kDouble) + n).view({rows, columns});
      parameters.emplace_back(name, values.div(2).to(dtype).requires_grad_());
    };
    make("first", 6, 5);
    make("second", 7, 6);
    make("head", 3, 7);
    make("other head", 3, 7);
    buffers = {{"passes", at::full({1}, offset)}, {"whole", at::full({2}, 1 + static_cast<std::int64_t>(offset))}};
  }

  // head: 0, 1, or 2 for both
  at::Tensor forward(const at::Tensor& x, int head = 2) const {
    buffers[0].second.add_(1);
    const at::Tensor hidden = at::tanh(at::linear(at::tanh(at::linear(x, tensor(0))), tensor(1)));
    if (head < 2) return at::linear(hidden, tensor(static_cast<std::size_t>(2 + head)));
    return at::linear(hidden, tensor(2)) * at::linear(hidden, tensor(3));
  }
  const at::Tensor& tensor(std::size_t i) const { return parameters[i].second; }

  DataParallel::Named parameters, buffers;
};

inline at::Tensor samples(int rank, int step, at::ScalarType dtype = at::kFloat) {
  return at::cos(at::arange(20, at::kDouble) * (1 + rank) + step).view({4, 5}).to(dtype);
}

inline void clear(const DataParallel::Named& parameters) {
  for (const auto& [name, tensor] : parameters) tensor.mutable_grad().reset();
}

using Gradients = std::vector<at::Tensor>;

inline Gradients gradients_of(const DataParallel::Named& parameters) {
  Gradients copies;
  for (const auto& [name, tensor] : parameters)
    copies.push_back(tensor.grad().defined() ? tensor.grad().clone() : at::Tensor());
  return copies;
}

// The largest difference of two elements; infinite if only one of two tensors is defined.
inline double difference(const Gradients& a, const Gradients& b) {
  double largest = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].defined() != b[i].defined()) return std::numeric_limits<double>::infinity();
    if (a[i].defined() && a[i].numel() > 0)
      largest = std::max(largest, (a[i].to(at::kDouble) - b[i].to(at::kDouble)).abs().max().item<double>());
  }
  return largest;
}

inline bool equal_bits(const Gradients& a, const Gradients& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].defined() != b[i].defined() || (a[i].defined() && !at::equal(a[i], b[i]))) return false;
  return true;
}

template <class T>
bool all_equal_bits(const std::vector<T>& by_rank) {
  for (const T& one : by_rank)
    if (!equal_bits(one, by_rank.front())) return false;
  return true;
}

// The mean over ranks, undefined counting as zeros.
inline Gradients mean_of(const std::vector<Gradients>& by_rank) {
  Gradients mean(by_rank.front().size());
  for (const Gradients& gradients : by_rank)
    for (std::size_t i = 0; i < mean.size(); ++i)
      if (gradients[i].defined())
        mean[i] = mean[i].defined() ? mean[i] + gradients[i].to(at::kDouble) : gradients[i].to(at::kDouble).clone();
  for (at::Tensor& one : mean)
    if (one.defined()) one.div_(static_cast<double>(by_rank.size()));
  return mean;
}

// A step whose backward pass reduces.
inline void reduce(DataParallel& parallel, const SmallNet& net, const at::Tensor& x, int head = 2) {
  parallel.before_forward();
  const at::Tensor out = net.forward(x, head);
  parallel.before_backward({out});
  out.pow(2).sum().backward();
  parallel.after_backward();
}

// A backward pass that adds up locally.
inline void accumulate(const SmallNet& net, const at::Tensor& x, int head = 2) {
  net.forward(x, head).pow(2).sum().backward();
}

// The gradients of a step on a rank without others.
inline Gradients local_gradients(const SmallNet& like, const at::Tensor& x, int head = 2) {
  SmallNet net(x.scalar_type());
  for (std::size_t i = 0; i < net.parameters.size(); ++i) net.tensor(i).detach().copy_(like.tensor(i).detach());
  accumulate(net, x, head);
  return gradients_of(net.parameters);
}

inline void descend(const SmallNet& net) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : net.parameters)
    if (tensor.grad().defined()) tensor.sub_(tensor.grad(), 0.01);
  clear(net.parameters);
}

}  // namespace composer::dist::test
