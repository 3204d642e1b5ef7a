#include "composer/models/resnet_cifar.h"

#include "composer/core/option.h"
#include "composer/models/ready.h"
#include "composer/models/residual_net.h"

namespace composer::models {

namespace {

std::vector<Option<ResNetCifarOptions>> resnet_cifar_options() {
  using O = ResNetCifarOptions;
  return all_options(option("depth", &O::depth)
                         .must("be 6n + 2 (8, 14, 20, 32, 44, 56, 110)",
                               [](std::int64_t depth) { return depth >= 8 && (depth - 2) % 6 == 0; }),
                     option("num_classes", &O::num_classes).at_least(1),
                     option("in_channels", &O::in_channels).at_least(1));
}

}  // namespace

std::shared_ptr<Classifier> resnet_cifar(ResNetCifarOptions options) {
  const auto [depth, num_classes, in_channels] = options;
  const auto described = resnet_cifar_options();
  check(options, described, "resnet_cifar: ", "");
  const std::int64_t blocks = (depth - 2) / 6;
  auto net = std::make_shared<detail::ResidualNet>(detail::ResidualNetOptions{.num_classes = num_classes,
                                                                              .in_channels = in_channels,
                                                                              .width = 16,
                                                                              .blocks = {blocks, blocks, blocks},
                                                                              .small_images = true});
  return std::make_shared<Classifier>(
      net, ClassifierOptions{
               .num_classes = num_classes, .hyperparameters = describe(options, described), .ready = "resnet_cifar"});
}

namespace entries {

Entry<ReadyModel> resnet_cifar() {
  return ready_model("resnet_cifar", "A residual net for small images", resnet_cifar_options(), models::resnet_cifar);
}

}  // namespace entries

}  // namespace composer::models
