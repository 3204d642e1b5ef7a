#pragma once
#include <cstddef>

#include "composer/core/algorithm.h"
#include "composer/core/export.h"

namespace torch::nn {
class Module;
}

namespace composer::algorithms {

// Converts the parameters and buffers [N, C, H, W] of a model to channels last: the channels are innermost in memory.
// Shapes and values do not change. Returns the number of such tensors.
COMPOSER_EXPORT std::size_t channels_last(torch::nn::Module& model);

// Applies channels_last() at INIT. Convolutions then compute in this layout, and convert batches with another one.
class COMPOSER_EXPORT ChannelsLast final : public Algorithm {
 public:
  EventSet events() const override { return {Event::INIT}; }
  void apply(Event event, State& state, Logger& logger) override;
};

}  // namespace composer::algorithms
