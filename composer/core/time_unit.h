#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>

#include "composer/core/error.h"
#include "composer/core/export.h"

namespace composer {

// The unit of a time. An iteration is a span of epochs or tokens that the user chose. Samples and tokens are counted
// over all ranks. A duration is a share of the whole run. Seconds are those spent in training.
enum class TimeUnit : std::uint8_t { ITERATION, EPOCH, BATCH, SAMPLE, TOKEN, DURATION, SECOND };

struct TimeUnitNames {
  std::string_view suffix, name;
};
inline constexpr std::array<TimeUnitNames, 7> kTimeUnitNames{{{"iter", "ITERATION"},
                                                              {"ep", "EPOCH"},
                                                              {"ba", "BATCH"},
                                                              {"sp", "SAMPLE"},
                                                              {"tok", "TOKEN"},
                                                              {"dur", "DURATION"},
                                                              {"sec", "SECOND"}}};

// The suffix: "ep".
constexpr std::string_view to_string(TimeUnit unit) { return kTimeUnitNames[static_cast<std::size_t>(unit)].suffix; }
COMPOSER_EXPORT std::ostream& operator<<(std::ostream& out, TimeUnit unit);

// Parses a suffix or a name in upper or lower case: "ep", "EPOCH", "epoch". Throws TimeSyntaxError.
COMPOSER_EXPORT TimeUnit parse_time_unit(std::string_view text);

// The text is not a time.
class COMPOSER_EXPORT TimeSyntaxError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};
// A fraction of a unit that is counted in whole numbers.
class COMPOSER_EXPORT TimeTypeError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};
// Two units where one is required, or a unit that is not allowed.
class COMPOSER_EXPORT TimeUnitError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};
// A count beyond 64 bits, or a division by zero.
class COMPOSER_EXPORT TimeRangeError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

}  // namespace composer
