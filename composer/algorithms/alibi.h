#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/algorithm.h"
#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace torch::nn {
class Module;
}

namespace composer::algorithms {

struct AlibiOptions {
  std::int64_t max_sequence_length = 0;  // required, >= 1: number of tokens that the model accepts afterwards
  // Length of the parts into which sequences are cut in training, as a share of their length, above 0; 1: not cut.
  double train_sequence_length_scaling = 0.25;
  std::string input_key = "input_ids";  // name of the tokens in the batch
};

// The slope of each head: 2^(-8 k / heads) for k = 1, 2, ... if `heads` is a power of two. Otherwise the slopes for the
// next smaller power of two, followed by every other slope for the next larger one. Throws ConfigError unless heads >=
// 1.
COMPOSER_EXPORT std::vector<double> alibi_head_slopes(std::int64_t heads);

// The bias that is added to the scores of attention: -slope * |i - j| as [1, heads, T, T]. If causal: slope * j as
// [heads, 1, T], because a constant in each row has no effect.
COMPOSER_EXPORT at::Tensor alibi_bias(std::int64_t heads, std::int64_t tokens, bool causal);

// Replaces the learned positions of language models (surgery/position_bias.h) by this bias. Returns the number of
// modules that were changed. Throws ConfigError for invalid options.
COMPOSER_EXPORT std::size_t alibi(torch::nn::Module& model, const AlibiOptions& options);

// Cuts the sequences [N, T] of the batch into parts of `scaling` * T tokens, which become samples. Throws ConfigError
// for a tensor whose shape differs from that of the tokens, and DataError if T is not a multiple of the length of a
// part.
COMPOSER_EXPORT Batch alibi_cut_sequences(const Batch& batch, double scaling,
                                          const std::string& input_key = "input_ids");

// Applies alibi() at INIT and alibi_cut_sequences() to each batch of training (arXiv:2108.12409). Attention then
// depends on distances instead of positions, so a model trained on short sequences accepts longer ones.
class COMPOSER_EXPORT Alibi final : public Algorithm {
 public:
  explicit Alibi(AlibiOptions options);  // throws ConfigError
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::INIT, Event::AFTER_DATALOADER}; }
  bool match(Event event, const State& state) const override;
  void apply(Event event, State& state, Logger& logger) override;
  bool required_on_load() const override { return true; }

 private:
  AlibiOptions options_;
  bool has_effect_ = false;
};

}  // namespace composer::algorithms
