#include "composer/models/resnet.h"

#include <torch/nn/init.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/models/residual_net.h"

namespace composer::models {
namespace {

std::vector<std::int64_t> blocks_of(std::int64_t depth) {
  switch (depth) {
    case 18:
      return {2, 2, 2, 2};
    case 34:
    case 50:
      return {3, 4, 6, 3};
    case 101:
      return {3, 4, 23, 3};
    case 152:
      return {3, 8, 36, 3};
    default:
      throw ConfigError("resnet: depth must be 18, 34, 50, 101 or 152, got ", depth);
  }
}

}  // namespace

std::shared_ptr<Classifier> resnet(ResNetOptions options) {
  const auto [depth, num_classes, in_channels, small_images] = options;
  const std::vector<std::int64_t> blocks = blocks_of(depth);
  if (num_classes < 1) throw ConfigError("resnet: num_classes must be >= 1, got ", num_classes);
  if (in_channels < 1) throw ConfigError("resnet: in_channels must be >= 1, got ", in_channels);
  auto net = std::make_shared<detail::ResidualNet>(detail::ResidualNetOptions{.num_classes = num_classes,
                                                                              .in_channels = in_channels,
                                                                              .width = 64,
                                                                              .blocks = blocks,
                                                                              .bottlenecks = depth >= 50,
                                                                              .small_images = small_images});
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
