#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace composer::dist {

inline constexpr int kLargestWorld = 1 << 20;  // number of ranks; a larger one is a mistake

// The value of an environment variable. Empty values count as unset.
std::optional<std::string> variable(const char* name);

// The value as a number within [low, high]. Throws ConfigError otherwise.
std::int64_t integer(const std::string& name, const std::string& value, std::int64_t low, std::int64_t high);

// Like integer(), for an environment variable. required_variable() throws ConfigError if the variable is unset;
// integer_variable() then returns nullopt.
std::int64_t required_variable(const char* name, std::int64_t low, std::int64_t high);
std::optional<std::int64_t> integer_variable(const char* name, std::int64_t low, std::int64_t high);

}  // namespace composer::dist
