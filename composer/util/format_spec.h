// The format specs of placeholders, as in {epoch:04d} and {batch:>6}, with the meaning that Python's format() gives
// them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace composer::util {

// [[fill]align][sign][0][width][, or _][.precision][type]. Throws ConfigError for a spec that Python rejects for a
// value of this type, and for a width above 255.
std::string format_count(std::int64_t value, std::string_view spec);
std::string format_text(std::string_view value, std::string_view spec);
std::string format_seconds(double value, std::string_view spec);

}  // namespace composer::util
