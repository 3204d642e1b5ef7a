#include "composer/dist/sharded_messages.h"

#include <algorithm>
#include <map>

namespace composer::dist {
namespace {

using ByOwner = std::vector<std::vector<std::size_t>>;

// Takes from each rank's parameters as many as fit, but at least one.
ShardMessage take(ByOwner& left, const Sharded::Named& parameters, std::int64_t elements_of_part) {
  ShardMessage message;
  message.by_owner.reserve(left.size());
  for (std::vector<std::size_t>& of_rank : left) {
    std::int64_t elements = 0;
    std::size_t count = 0;
    for (; count < of_rank.size(); ++count) {
      const std::int64_t more = parameters[of_rank[count]].second.numel();
      if (count > 0 && elements + more > elements_of_part) break;
      elements += more;
    }
    const auto end = of_rank.begin() + static_cast<std::ptrdiff_t>(count);
    message.by_owner.emplace_back(of_rank.begin(), end);
    of_rank.erase(of_rank.begin(), end);
    message.part = std::max(message.part, elements);
  }
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
