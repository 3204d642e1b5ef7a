#include "composer/callbacks/wall_clock_unit.h"

#include "composer/core/error.h"

namespace composer::callbacks {

double seconds_in(WallClockUnit unit, const char* who) {
  switch (unit) {
    case WallClockUnit::SECONDS:
      return 1;
    case WallClockUnit::MINUTES:
      return 60;
    case WallClockUnit::HOURS:
      return 3'600;
    case WallClockUnit::DAYS:
      return 86'400;
  }
  throw ConfigError(who, ": time_unit must be SECONDS, MINUTES, HOURS or DAYS, got ", static_cast<int>(unit));
}

std::string_view to_string(WallClockUnit unit) {
  for (const auto& [text, known] : kWallClockUnits)
    if (known == unit) return text;
  return "unknown";
}

}  // namespace composer::callbacks
