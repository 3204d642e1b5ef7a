#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>

#include "composer/core/error.h"
#include "composer/core/export.h"

namespace composer {

// What a time is counted in. An iteration is a span of epochs or tokens that the user chose; samples and tokens are
// counted over all ranks; a duration is a share of the whole run; seconds are those spent in training.
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

// From a suffix or a name in any case: "ep", "EPOCH", "epoch". Throws TimeSyntaxError.
COMPOSER_EXPORT TimeUnit parse_time_unit(std::string_view text);

// The text is no time.
class COMPOSER_EXPORT TimeSyntaxError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};
// A fraction where whole numbers are counted.
class COMPOSER_EXPORT TimeTypeError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};
// Two units where one is needed, or a unit that has no meaning here.
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
