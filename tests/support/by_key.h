#pragma once
#include <map>
#include <string>
#include <variant>

#include "composer/device/device_reader.h"

namespace composer::test {

// Readings as numbers, by their keys.
inline std::map<std::string, double> by_key(const Readings& readings) {
  std::map<std::string, double> values;
  for (const auto& [key, value] : readings)
    values[key] = std::visit([](auto number) { return static_cast<double>(number); }, value);
  return values;
}

}  // namespace composer::test
