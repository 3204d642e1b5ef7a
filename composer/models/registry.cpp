#include "composer/models/registry.h"

#include "composer/core/option.h"
#include "composer/core/state_dict.h"
#include "composer/models/classifier.h"

namespace composer::models {

// Each entry is defined beside its model.
namespace entries {
Entry<ReadyModel> bert();
Entry<ReadyModel> gpt();
Entry<ReadyModel> mlp();
Entry<ReadyModel> mnist_cnn();
Entry<ReadyModel> resnet();
Entry<ReadyModel> resnet9();
Entry<ReadyModel> resnet_cifar();
Entry<ReadyModel> vit();
}  // namespace entries

const Registry<ReadyModel>& registry() {
  static const Registry<ReadyModel> entries = {
      entries::bert(),  // one line for each
      entries::gpt(),     entries::mlp(),          entries::mnist_cnn(), entries::resnet(),
      entries::resnet9(), entries::resnet_cifar(), entries::vit(),
  };
  return entries;
}

ReadyModel make(std::string_view name, const Settings& options) { return registry().find(name).make(options); }

ReadyModel make(std::string_view name, const StateDict& options) {
  Settings settings;
  for (const auto& [key, value] : options.entries()) settings.emplace(key, text_of(value));
  return make(name, settings);
}

}  // namespace composer::models
