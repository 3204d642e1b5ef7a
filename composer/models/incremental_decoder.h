#pragma once
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::models {

// A causal language model that can go on with texts, because it keeps the keys and values of their tokens. generate()
// uses it if a Model, or the module of a Classifier, derives from this class.
class COMPOSER_EXPORT IncrementalDecoder {
 public:
  // Texts of one length that the model has read a part of.
  class COMPOSER_EXPORT Texts {
   public:
    virtual ~Texts();
    // Appends tokens, int64 [N, T] with T >= 1, and returns the logits of the token that follows, [N, vocabulary].
    virtual at::Tensor append(const at::Tensor& tokens) = 0;
  };

  virtual ~IncrementalDecoder();
  virtual std::int64_t max_tokens() const = 0;  // of a text
  // Begins with N empty texts that will have up to `capacity` tokens. `padding`, int64 [N], says how many tokens at the
  // beginning of each are none, so that texts of different lengths end together; undefined: 0. Returns null if a part
  // of the model was replaced by one that keeps nothing.
  virtual std::unique_ptr<Texts> begin(std::int64_t texts, std::int64_t capacity, const at::Tensor& padding) = 0;
};

}  // namespace composer::models
