#pragma once
// Describes a ready model for models::registry(), in the model's own source. Internal.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/entry.h"
#include "composer/core/option.h"
#include "composer/models/classifier.h"
#include "composer/models/registry.h"

namespace composer::models {

template <class Options>
Entry<ReadyModel> ready_model(std::string name, std::string summary, std::vector<Option<Options>> options,
                              std::shared_ptr<Classifier> (*make)(Options)) {
  composer::detail::check_names(name, options);
  auto add_to = [name, options, make](ReadyModel& model, const Settings& settings) {
    model = make(composer::detail::read_options(name, options, settings));
  };
  return {std::move(name), std::move(summary), {options.begin(), options.end()}, std::move(add_to)};
}

}  // namespace composer::models
