#include "composer/dist/sharded_messages.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace composer::dist {
namespace {

using ByOwner = std::vector<std::vector<std::size_t>>;

// Takes from each rank's parameters as many as fit, but at least one. Parts are padded to the largest. If one parameter
// would make most of the message padding, the parameter gets a message of its own.
ShardMessage take(ByOwner& left, const Sharded::Named& parameters, std::int64_t elements_of_part) {
  ShardMessage message;
  message.by_owner.resize(left.size());
  std::vector<std::int64_t> sizes(left.size());
  for (std::size_t rank = 0; rank < left.size(); ++rank)
    for (const std::size_t i : left[rank]) {
      const std::int64_t more = parameters[i].second.numel();
      if (!message.by_owner[rank].empty() && sizes[rank] + more > elements_of_part) break;
      message.by_owner[rank].push_back(i);
      sizes[rank] += more;
    }
  const auto largest = std::ranges::max_element(sizes);
  message.part = *largest;
  const std::int64_t sent = message.part * std::ssize(sizes), used = std::reduce(sizes.begin(), sizes.end());
  if (message.part > elements_of_part && sent > 2 * used)
    for (std::size_t rank = 0; rank < left.size(); ++rank)
      if (&sizes[rank] != &*largest) message.by_owner[rank].clear();
  for (std::size_t rank = 0; rank < left.size(); ++rank)
    left[rank].erase(left[rank].begin(), left[rank].begin() + std::ssize(message.by_owner[rank]));
  return message;
}

}  // namespace

std::optional<int> ShardMessage::sole_owner() const {
  std::optional<int> owner;
  for (std::size_t rank = 0; rank < by_owner.size(); ++rank) {
    if (by_owner[rank].empty()) continue;
    if (owner) return std::nullopt;
    owner = static_cast<int>(rank);
  }
  return owner;
}

std::vector<ShardMessage> shard_messages(const Sharded::Named& parameters, const std::vector<int>& owners, int ranks,
                                         const std::vector<bool>& which, std::int64_t message_bytes) {
  std::map<at::ScalarType, ByOwner> by_dtype;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!which[i]) continue;
    ByOwner& by_owner = by_dtype[parameters[i].second.scalar_type()];
    by_owner.resize(static_cast<std::size_t>(ranks));
    by_owner[static_cast<std::size_t>(owners[i])].push_back(i);
  }
  std::vector<ShardMessage> messages;
  for (auto& [dtype, left] : by_dtype) {
    const std::int64_t elements = message_bytes / static_cast<std::int64_t>(c10::elementSize(dtype)) / ranks;
    while (std::ranges::any_of(left, [](const auto& of_rank) { return !of_rank.empty(); })) {
      ShardMessage& message = messages.emplace_back(take(left, parameters, elements));
      for (const auto& of_rank : message.by_owner)
        if (!of_rank.empty()) message.options = parameters[of_rank.front()].second.options().requires_grad(false);
    }
  }
  return messages;
}

at::Tensor slice_for(const at::Tensor& flat, std::int64_t offset, const at::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense())
    return flat.as_strided(parameter.sizes(), parameter.strides(), flat.storage_offset() + offset);
  return flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
}

}  // namespace composer::dist
