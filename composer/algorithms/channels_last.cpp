#include "composer/algorithms/channels_last.h"

#include <ATen/core/Tensor.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"

namespace composer::algorithms {

std::size_t channels_last(torch::nn::Module& model) {
  std::size_t images = 0;
  const auto convert = [&images](const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.dim() != 4) continue;
      ++images;
      tensor.set_data(tensor.detach().contiguous(at::MemoryFormat::ChannelsLast));
    }
  };
  convert(parameters(model));
  convert(buffers(model));
  return images;
}

void ChannelsLast::apply(Event, State& state, Logger&) {
  if (channels_last(as_module(*state.model)) == 0)
    warn("ChannelsLast: has no effect: the model has no parameter or buffer [N, C, H, W]");
}

namespace entries {

Entry<Algorithms> channels_last() {
  return entry<ChannelsLast>("channels_last", "Lays out weights of convolutions with the channels innermost");
}

}  // namespace entries
}  // namespace composer::algorithms
