// Parameters of all ranks in messages of one size. Internal.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/dist/sharded.h"

namespace composer::dist {

// What is reduced or gathered at once: some parameters of one dtype, by owner, one after another.
struct ShardMessage {
  std::vector<std::vector<std::size_t>> by_owner;
  std::int64_t part = 0;  // elements of the rank with the most
  at::TensorOptions options;

  // The rank that owns all of it: the others' parts would be empty, so it is sent without them.
  std::optional<int> sole_owner() const;
};

// Parameters for which `which` is true, in messages of about so many bytes.
std::vector<ShardMessage> shard_messages(const Sharded::Named& parameters, const std::vector<int>& owners, int ranks,
                                         const std::vector<bool>& which, std::int64_t message_bytes);

// That part of the flat tensor in the shape and layout of the parameter.
at::Tensor slice_for(const at::Tensor& flat, std::int64_t offset, const at::Tensor& parameter);

}  // namespace composer::dist
