// Stage 2: gradients that only their owners keep.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "composer/dist/agreement.h"
#include "composer/dist/sharded.h"
#include "composer/dist/world.h"

namespace composer::dist {

namespace {

// What is reduced at once: for each rank some of its parameters, one after another.
struct Message {
  std::vector<std::vector<std::size_t>> by_owner;
  std::int64_t part = 0;  // elements of the rank with the most
};

// The messages for the parameters of one dtype.
std::vector<Message> divide_into_messages(std::vector<std::vector<std::size_t>> left, const Sharded::Named& parameters,
                                          std::int64_t elements_of_part) {
  std::vector<Message> messages;
  while (std::ranges::any_of(left, [](const auto& of_rank) { return !of_rank.empty(); })) {
    Message& message = messages.emplace_back();
    for (std::vector<std::size_t>& of_rank : left) {
      std::vector<std::size_t>& taken = message.by_owner.emplace_back();
      std::int64_t elements = 0;
      std::size_t count = 0;
      for (; count < of_rank.size(); ++count) {
        const std::int64_t more = parameters[of_rank[count]].second.numel();
        if (count > 0 && elements + more > elements_of_part) break;
        elements += more;
      }
      const auto end = of_rank.begin() + static_cast<std::ptrdiff_t>(count);
      taken.assign(of_rank.begin(), end);
      of_rank.erase(of_rank.begin(), end);
      message.part = std::max(message.part, elements);
    }
  }
  return messages;
}

at::Tensor slice_for(const at::Tensor& flat, std::int64_t offset, const at::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense())
    return flat.as_strided(parameter.sizes(), parameter.strides(), flat.storage_offset() + offset);
  return flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
}

std::size_t first_of(const Message& message) {
  for (const auto& of_rank : message.by_owner)
    if (!of_rank.empty()) return of_rank.front();
  return 0;
}

// A part of the message for each owner. Its rank keeps the sum of that part.
void reduce(World& world, const Message& message, const Sharded::Named& parameters) {
  const at::TensorOptions options = parameters[first_of(message)].second.options().requires_grad(false);
  const at::Tensor all = at::zeros({world.size() * message.part}, options);
  for (std::size_t rank = 0; rank < message.by_owner.size(); ++rank) {
    std::int64_t at = static_cast<std::int64_t>(rank) * message.part;
    for (const std::size_t i : message.by_owner[rank]) {
      const at::Tensor& parameter = parameters[i].second;
      at::Tensor& gradient = parameter.mutable_grad();
      if (gradient.defined()) slice_for(all, at, parameter).copy_(gradient);
      gradient.reset();
      at += parameter.numel();
    }
  }
  all.div_(world.size());
  const at::Tensor own = at::empty({message.part}, options);
  world.reduce_scatter(own, all);
  std::int64_t at = 0;
  for (const std::size_t i : message.by_owner[static_cast<std::size_t>(world.rank())]) {
    const at::Tensor& parameter = parameters[i].second;
    parameter.mutable_grad() = slice_for(own, at, parameter);
    at += parameter.numel();
  }
}

}  // namespace

void Sharded::reduce_gradients(std::int64_t message_bytes) {
  if (world_->is_alone()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters_) tensors.push_back(tensor);
  const std::vector<bool> present = have_gradients(*world_, tensors);
  const auto ranks = static_cast<std::size_t>(world_->size());
  std::map<at::ScalarType, std::vector<std::vector<std::size_t>>> by_dtype;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!present[i]) continue;
    auto& by_owner = by_dtype[parameters_[i].second.scalar_type()];
    by_owner.resize(ranks);
    by_owner[static_cast<std::size_t>(owners_[i])].push_back(i);
  }
  for (const auto& [dtype, by_owner] : by_dtype) {
    const std::int64_t elements =
        message_bytes / static_cast<std::int64_t>(c10::elementSize(dtype)) / static_cast<std::int64_t>(ranks);
    for (const Message& message : divide_into_messages(by_owner, parameters_, elements))
      reduce(*world_, message, parameters_);
  }
}

}  // namespace composer::dist
