// Messages of each step: gradients to their owners (stage 2), and new values from the owners.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/dist/agreement.h"
#include "composer/dist/sharded.h"
#include "composer/dist/sharded_messages.h"
#include "composer/dist/world.h"

namespace composer::dist {

namespace {

// Copies the gradients of one owner's parameters into the message, and makes the gradients undefined.
void take_gradients(const std::vector<std::size_t>& indices, const Sharded::Named& parameters, const at::Tensor& into,
                    std::int64_t offset) {
  for (const std::size_t i : indices) {
    const auto& [name, parameter] = parameters[i];
    at::Tensor& gradient = parameter.mutable_grad();
    if (gradient.defined() && gradient.layout() != at::kStrided)
      throw ConfigError("distributed.zero_stage: the gradient of ", name, " is sparse; use dense gradients");
    if (gradient.defined()) slice_for(into, offset, parameter).copy_(gradient);
    gradient.reset();
    offset += parameter.numel();
  }
}

void put_gradients(const std::vector<std::size_t>& indices, const Sharded::Named& parameters, const at::Tensor& from) {
  std::int64_t offset = 0;
  for (const std::size_t i : indices) {
    const at::Tensor& parameter = parameters[i].second;
    // The gradient is not a view, because detach_() rejects views.
    parameter.mutable_grad() = slice_for(from, offset, parameter).variable_data();
    offset += parameter.numel();
  }
}

// Sends a part of the message to each owner. Each rank keeps the sum of its own part.
void reduce(World& world, const ShardMessage& message, const Sharded::Named& parameters) {
  const auto& own = message.by_owner[static_cast<std::size_t>(world.rank())];
  const std::optional<int> sole = message.sole_owner();
  const at::Tensor all = at::zeros({(sole ? 1 : world.size()) * message.part}, message.options);
  for (std::size_t rank = 0; rank < message.by_owner.size(); ++rank)
    take_gradients(message.by_owner[rank], parameters, all, sole ? 0 : static_cast<std::int64_t>(rank) * message.part);
  all.div_(world.size());
  if (sole) {
    world.sum(all);
    return put_gradients(own, parameters, all);
  }
  const at::Tensor part = at::empty({message.part}, message.options);
  world.reduce_scatter(part, all);
  put_gradients(own, parameters, part);
}

void share(World& world, const ShardMessage& message, const Sharded::Named& parameters) {
  if (const std::optional<int> sole = message.sole_owner()) {
    std::vector<at::Tensor> owned;
    for (const std::size_t i : message.by_owner[static_cast<std::size_t>(*sole)])
      owned.push_back(parameters[i].second.detach());
    return world.broadcast(owned, *sole);
  }
  const auto own = static_cast<std::size_t>(world.rank());
  const at::Tensor part = at::zeros({message.part}, message.options);
  const at::Tensor all = at::empty({world.size() * message.part}, message.options);
  std::int64_t offset = 0;
  for (const std::size_t i : message.by_owner[own]) {
    slice_for(part, offset, parameters[i].second).copy_(parameters[i].second);
    offset += parameters[i].second.numel();
  }
  world.all_gather_into(all, part);
  for (std::size_t rank = 0; rank < message.by_owner.size(); ++rank) {
    if (rank == own) continue;
    offset = static_cast<std::int64_t>(rank) * message.part;
    for (const std::size_t i : message.by_owner[rank]) {
      parameters[i].second.copy_(slice_for(all, offset, parameters[i].second));
      offset += parameters[i].second.numel();
    }
  }
}

}  // namespace

std::vector<bool> Sharded::reduce_gradients(std::int64_t message_bytes) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  tensors.reserve(parameters_.size());
  for (const auto& [name, tensor] : parameters_) tensors.push_back(tensor);
  std::vector<bool> present = have_gradients(*world_, tensors);
  if (world_->is_alone()) return present;
  for (const ShardMessage& message : shard_messages(parameters_, owners_, world_->size(), present, message_bytes))
    reduce(*world_, message, parameters_);
  return present;
}

void Sharded::exchange(const std::vector<bool>& changed, std::int64_t message_bytes) {
  if (world_->is_alone()) return;
  const at::NoGradGuard no_grad;
  for (const ShardMessage& message : shard_messages(parameters_, owners_, world_->size(), changed, message_bytes))
    share(*world_, message, parameters_);
}

}  // namespace composer::dist
