#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "composer/core/export.h"

namespace composer::callbacks {

// The unit in which a callback logs wall time.
enum class WallClockUnit : std::uint8_t { SECONDS, MINUTES, HOURS, DAYS };

// The seconds of one unit. Throws ConfigError that begins with `who` for a value that is not in the enum.
COMPOSER_EXPORT double seconds_in(WallClockUnit unit, const char* who);

// "seconds", as the option is written.
COMPOSER_EXPORT std::string_view to_string(WallClockUnit unit);

// Conversion of the option `time_unit` from and to text.
COMPOSER_EXPORT std::vector<std::pair<std::string, WallClockUnit>> wall_clock_units();

}  // namespace composer::callbacks
