#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "composer/core/export.h"

namespace composer::callbacks {

// The unit in which a callback logs wall time.
enum class WallClockUnit : std::uint8_t { SECONDS, MINUTES, HOURS, DAYS };

// The seconds of one unit. Throws ConfigError that begins with `who` for a value that is not in the enum.
COMPOSER_EXPORT double seconds_in(WallClockUnit unit, const char* who);

// "seconds", as the option is written.
COMPOSER_EXPORT std::string_view to_string(WallClockUnit unit);

// The texts of the option `time_unit`.
inline constexpr std::array<std::pair<const char*, WallClockUnit>, 4> kWallClockUnits = {
    {{"seconds", WallClockUnit::SECONDS},
     {"minutes", WallClockUnit::MINUTES},
     {"hours", WallClockUnit::HOURS},
     {"days", WallClockUnit::DAYS}}};

}  // namespace composer::callbacks
