#include "composer/models/resnet_cifar.h"

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/models/residual_net.h"

namespace composer::models {

std::shared_ptr<Classifier> resnet_cifar(ResNetCifarOptions options) {
  const auto [depth, num_classes, in_channels] = options;
  if (depth < 8 || (depth - 2) % 6 != 0)
    throw ConfigError("resnet_cifar: depth must be 6n + 2 (8, 14, 20, 32, 44, 56, 110), got ", depth);
  if (num_classes < 1) throw ConfigError("resnet_cifar: num_classes must be >= 1, got ", num_classes);
  if (in_channels < 1) throw ConfigError("resnet_cifar: in_channels must be >= 1, got ", in_channels);
  const std::int64_t blocks = (depth - 2) / 6;
  auto net = std::make_shared<detail::ResidualNet>(detail::ResidualNetOptions{.num_classes = num_classes,
                                                                              .in_channels = in_channels,
                                                                              .width = 16,
                                                                              .blocks = {blocks, blocks, blocks},
                                                                              .small_images = true});
  return std::make_shared<Classifier>(
      net, ClassifierOptions{
               .num_classes = num_classes,
               .hyperparameters = describe(options, {option("depth", &ResNetCifarOptions::depth),
                                                     option("num_classes", &ResNetCifarOptions::num_classes),
                                                     option("in_channels", &ResNetCifarOptions::in_channels)})});
}

}  // namespace composer::models
