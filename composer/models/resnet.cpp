#include "composer/models/resnet.h"

#include <torch/nn/init.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/models/residual_net.h"

namespace composer::models {

std::shared_ptr<Classifier> resnet(ResNetOptions options) {
  const auto [depth, num_classes, in_channels, small_images] = options;
  if (depth != 18 && depth != 34) throw ConfigError("resnet: depth must be 18 or 34, got ", depth);
  if (num_classes < 1) throw ConfigError("resnet: num_classes must be >= 1, got ", num_classes);
  if (in_channels < 1) throw ConfigError("resnet: in_channels must be >= 1, got ", in_channels);
  detail::ResidualNetOptions parts{
      .num_classes = num_classes, .in_channels = in_channels, .width = 64, .small_images = small_images};
  if (depth == 18) {
    parts.blocks = {2, 2, 2, 2};
  } else {
    parts.blocks = {3, 4, 6, 3};
  }
  auto net = std::make_shared<detail::ResidualNet>(parts);
  for (at::Tensor& parameter : net->parameters())
    if (parameter.dim() == 4) torch::nn::init::kaiming_normal_(parameter, 0, torch::kFanOut, torch::kReLU);
  return std::make_shared<Classifier>(
      net,
      ClassifierOptions{.num_classes = num_classes,
                        .hyperparameters = describe(options, {option("depth", &ResNetOptions::depth),
                                                              option("num_classes", &ResNetOptions::num_classes),
                                                              option("in_channels", &ResNetOptions::in_channels),
                                                              option("small_images", &ResNetOptions::small_images)})});
}

}  // namespace composer::models
