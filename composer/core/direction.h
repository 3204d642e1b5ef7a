#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "composer/core/export.h"
#include "composer/core/metric.h"

namespace composer {

struct State;

// Which values of a metric are better, for a plug-in that follows the metric: `given` from its options; otherwise as
// the metric declares that is reported under the label; otherwise as the model's metric with this name declares. If
// none of them says, the direction is guessed from the name, with a warning that begins with `who`: lower for names
// that contain loss, error, perplexity or entropy, higher for all others. Call this once, when there is a value.
COMPOSER_EXPORT Better direction(std::string_view who, std::optional<Better> given, const State& state,
                                 std::string_view label, std::string_view name);

}  // namespace composer
