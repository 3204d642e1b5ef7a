#pragma once
#include <cstddef>

#include "composer/core/algorithm.h"
#include "composer/core/export.h"

namespace torch::nn {
class Module;
}

namespace composer::algorithms {

// Lays out the parameters and buffers [N, C, H, W] of a model with the channels innermost in memory (channels last).
// Shapes and values stay as they are. Returns the number of such tensors.
COMPOSER_EXPORT std::size_t channels_last(torch::nn::Module& model);

// Does this at INIT. Convolutions then compute in this layout, and convert batches that have another one.
class COMPOSER_EXPORT ChannelsLast final : public Algorithm {
 public:
  EventSet events() const override { return {Event::INIT}; }
  void apply(Event event, State& state, Logger& logger) override;
};

}  // namespace composer::algorithms
