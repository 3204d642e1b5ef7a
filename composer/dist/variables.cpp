#include "composer/dist/variables.h"

#include <charconv>
#include <utility>

#include "composer/core/error.h"
#include "composer/util/environment.h"

namespace composer::dist {

std::optional<std::string> variable(const char* name) {
  std::string value = composer::environment(name);
  return value.empty() ? std::nullopt : std::optional(std::move(value));
}

std::int64_t integer(const std::string& name, const std::string& value, std::int64_t low, std::int64_t high) {
  std::int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end || number < low || number > high)
    throw ConfigError(name, "='", value, "' is not an integer from ", low, " to ", high);
  return number;
}

std::int64_t required_variable(const char* name, std::int64_t low, std::int64_t high) {
  const std::optional<std::int64_t> number = integer_variable(name, low, high);
  if (!number)
    throw ConfigError("the environment variable ", name, " is missing; the launcher must set it for each rank");
  return *number;
}

std::optional<std::int64_t> integer_variable(const char* name, std::int64_t low, std::int64_t high) {
  const std::optional<std::string> value = variable(name);
  if (!value) return std::nullopt;
  return integer(name, *value, low, high);
}

}  // namespace composer::dist
