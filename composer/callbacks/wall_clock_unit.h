#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "composer/core/export.h"

namespace composer::callbacks {

// The unit in which a callback logs wall time.
enum class WallClockUnit : std::uint8_t { SECONDS, MINUTES, HOURS, DAYS };

// The number of seconds in a unit. Throws ConfigError, beginning with `who`, for a value that is not in the enum.
COMPOSER_EXPORT double seconds_in(WallClockUnit unit, const char* who);

// The name of the unit as in the option: "seconds".
COMPOSER_EXPORT std::string_view to_string(WallClockUnit unit);

// Names of the values of the option `time_unit`.
inline constexpr std::array<std::pair<const char*, WallClockUnit>, 4> kWallClockUnits = {
    {{"seconds", WallClockUnit::SECONDS},
     {"minutes", WallClockUnit::MINUTES},
     {"hours", WallClockUnit::HOURS},
     {"days", WallClockUnit::DAYS}}};

}  // namespace composer::callbacks
