// Puts the parameters of all ranks into messages of one size. Internal.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/dist/sharded.h"

namespace composer::dist {

// The content of one reduction or gather: some parameters of one dtype, by owner, one after another.
struct ShardMessage {
  std::vector<std::vector<std::size_t>> by_owner;
  std::int64_t part = 0;  // number of elements of the rank with the most
  at::TensorOptions options;

  // The only rank that owns parameters of this message, if there is one. Such a message is sent without the empty parts
  // of other ranks.
  std::optional<int> sole_owner() const;
};

// Puts the parameters for which `which` is true into messages of about `message_bytes`.
std::vector<ShardMessage> shard_messages(const Sharded::Named& parameters, const std::vector<int>& owners, int ranks,
                                         const std::vector<bool>& which, std::int64_t message_bytes);

// The part of the flat tensor that begins at `offset`, in the shape and layout of the parameter.
at::Tensor slice_for(const at::Tensor& flat, std::int64_t offset, const at::Tensor& parameter);

}  // namespace composer::dist
