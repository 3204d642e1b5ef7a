#pragma once
#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer {

// What is added to the scores of attention between T tokens: [1, heads, T, T] on the device and of the type of `like`,
// -inf where a token must not look. The same memory every time for the same T, device and type.
using PositionBias = std::function<at::Tensor(std::int64_t tokens, const at::Tensor& like)>;

// A model of texts whose learned positions can be replaced by a bias on the scores of attention. A module that derives
// from it takes part in algorithms::Alibi.
class COMPOSER_EXPORT LearnsPositions {
 public:
  virtual ~LearnsPositions();
  virtual std::int64_t attention_heads() const = 0;
  virtual bool is_causal() const = 0;  // no token looks at those behind it
  // Removes the learned positions and their parameter, and adds the bias in every attention of the model from now on.
  // The model then accepts up to max_tokens tokens. Returns false, and changes nothing, if there is a bias already.
  virtual bool set_position_bias(PositionBias bias, std::int64_t max_tokens) = 0;
};

}  // namespace composer
