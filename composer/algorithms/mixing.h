#pragma once
// Functions for algorithms that mix two samples.
#include <string>

#include <ATen/core/Tensor.h>

namespace composer {
struct State;
}

namespace composer::algorithms {

// Returns (1 - share) * a + share * b.
at::Tensor mix(const at::Tensor& a, const at::Tensor& b, double share);

// Throws ConfigError for an input of whole numbers such as token ids, which cannot be mixed.
void check_can_be_mixed(const char* algorithm, const std::string& key, const at::Tensor& input);

// Replaces the target by probabilities: a mixture of the target and `other`. Throws ConfigError if classes are not in
// dimension 1 of the output.
void mix_targets(const char* algorithm, State& state, const std::string& key, const at::Tensor& other, double share);

// Replaces each loss by a mixture of it and the loss for the target `other`.
void mix_losses(State& state, const std::string& key, const at::Tensor& other, double share);

}  // namespace composer::algorithms
