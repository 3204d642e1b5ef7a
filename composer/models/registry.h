#pragma once
#include <memory>
#include <string_view>

#include "composer/core/export.h"
#include "composer/core/registry.h"

namespace composer {
class StateDict;
}  // namespace composer

namespace composer::models {

class Classifier;
using ReadyModel = std::shared_ptr<Classifier>;

// The ready models by name, with their options as text.
COMPOSER_EXPORT const Registry<ReadyModel>& registry();

// Makes a ready model by name: make("resnet", {{"depth", "50"}}). Throws ConfigError for an unknown name or option, and
// for what the function of that name refuses.
COMPOSER_EXPORT ReadyModel make(std::string_view name, const Settings& options = {});
// The same, with the options as Model::local_hparams() returns them.
COMPOSER_EXPORT ReadyModel make(std::string_view name, const StateDict& options);

}  // namespace composer::models
