#include "composer/callbacks/wall_clock_unit.h"

#include <array>

#include "composer/core/error.h"

namespace composer::callbacks {
namespace {

struct Unit {
  WallClockUnit unit;
  std::string_view name;
  double seconds;
};
constexpr std::array kUnits = {Unit{WallClockUnit::SECONDS, "seconds", 1}, Unit{WallClockUnit::MINUTES, "minutes", 60},
                               Unit{WallClockUnit::HOURS, "hours", 3600}, Unit{WallClockUnit::DAYS, "days", 86400}};

}  // namespace

double seconds_in(WallClockUnit unit, const char* who) {
  for (const Unit& known : kUnits)
    if (known.unit == unit) return known.seconds;
  throw ConfigError(who, ": time_unit must be SECONDS, MINUTES, HOURS or DAYS, got ", static_cast<int>(unit));
}

std::string_view to_string(WallClockUnit unit) {
  for (const Unit& known : kUnits)
    if (known.unit == unit) return known.name;
  return "unknown";
}

std::vector<std::pair<std::string, WallClockUnit>> wall_clock_units() {
  std::vector<std::pair<std::string, WallClockUnit>> units;
  units.reserve(std::size(kUnits));
  for (const Unit& known : kUnits) units.emplace_back(known.name, known.unit);
  return units;
}

}  // namespace composer::callbacks
