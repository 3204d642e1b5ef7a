#include "composer/models/resnet.h"

#include <torch/nn/init.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/models/ready.h"
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

std::vector<Option<ResNetOptions>> resnet_options() {
  using O = ResNetOptions;
  return all_options(option("depth", &O::depth), option("num_classes", &O::num_classes).at_least(1),
                     option("in_channels", &O::in_channels).at_least(1), option("small_images", &O::small_images));
}

}  // namespace

std::shared_ptr<Classifier> resnet(ResNetOptions options) {
  const auto [depth, num_classes, in_channels, small_images] = options;
  const std::vector<std::int64_t> blocks = blocks_of(depth);
  const auto described = resnet_options();
  check(options, described, "resnet: ", "");
  auto net = std::make_shared<detail::ResidualNet>(detail::ResidualNetOptions{.num_classes = num_classes,
                                                                              .in_channels = in_channels,
                                                                              .width = 64,
                                                                              .blocks = blocks,
                                                                              .bottlenecks = depth >= 50,
                                                                              .small_images = small_images});
  for (at::Tensor& parameter : net->parameters())
    if (parameter.dim() == 4) torch::nn::init::kaiming_normal_(parameter, 0, torch::kFanOut, torch::kReLU);
  return std::make_shared<Classifier>(
      net, ClassifierOptions{
               .num_classes = num_classes, .hyperparameters = describe(options, described), .ready = "resnet"});
}

namespace entries {

Entry<ReadyModel> resnet() {
  return ready_model("resnet", "ResNet-18, 34, 50, 101 or 152", resnet_options(), models::resnet);
}

}  // namespace entries

}  // namespace composer::models
