#include "composer/checkpoint/run_manifest.h"

#include <variant>

#include <torch/version.h>

#include "composer/checkpoint/measured_values.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"

namespace composer::saving {

Manifest manifest_of(const State& state, const std::string& name) {
  Manifest manifest;
  manifest.name = format_name(name, state.run_name, &state.timestamp);
  manifest.run_name = state.run_name;
  manifest.time = state.timestamp;
  manifest.composer_version = COMPOSER_VERSION;
  manifest.libtorch_version = TORCH_VERSION;
  state.run->weights_version();  // marks metrics of other weights as not current
  manifest.metrics = current_metrics(state);
  return manifest;
}

std::optional<std::int64_t> fit_of(const StateDict& all) {
  const StateValue* fit = all.find("fit");
  if (fit == nullptr) return std::nullopt;
  const StateValue* number = std::get<StateDict>(*fit).find("number");
  return number == nullptr ? std::nullopt : std::optional(std::get<std::int64_t>(*number));
}

}  // namespace composer::saving
