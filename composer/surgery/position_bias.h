#pragma once
#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer {

// Returns the bias that is added to the scores of attention between T tokens: [1, heads, T, T] on the device and of the
// type of `like`, -inf where a token must not see another. Returns the same memory each time for the same T, device and
// type.
using PositionBias = std::function<at::Tensor(std::int64_t tokens, const at::Tensor& like)>;

// A language model whose learned positions can be replaced by a bias on the scores of attention. algorithms::Alibi
// works on modules that derive from this class.
class COMPOSER_EXPORT LearnsPositions {
 public:
  virtual ~LearnsPositions();
  virtual std::int64_t attention_heads() const = 0;
  virtual bool is_causal() const = 0;  // no token sees later ones
  // Removes the learned positions and their parameter, and adds the bias in every attention of the model. The model
  // then accepts up to max_tokens tokens. Returns false, and changes nothing, if there already is a bias.
  virtual bool set_position_bias(PositionBias bias, std::int64_t max_tokens) = 0;
};

}  // namespace composer
