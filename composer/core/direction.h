#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "composer/core/export.h"
#include "composer/core/metric.h"

namespace composer {

struct State;

// Which values of a metric are better, for who follows it: as `given` in the options, else as the metric declares that
// reports it under the label, else as the model's metric of that name declares. Otherwise it is guessed, with a warning
// that begins with `who`: lower for names that contain loss, error, perplexity or entropy, and higher for all others.
// Ask once, when there is a value.
COMPOSER_EXPORT Better direction(std::string_view who, std::optional<Better> given, const State& state,
                                 std::string_view label, std::string_view name);

}  // namespace composer
