#pragma once
#include <bit>
#include <chrono>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "composer/core/export.h"
#include "composer/core/time_parse.h"
#include "composer/core/time_unit.h"

namespace composer {

template <class T>
concept Number = std::integral<T> || std::floating_point<T>;

// A length of training, or a point in it: "10ep", "500ba", "3e4tok", "1h20m40s", or "0.5dur", a share of the whole run.
// The compiler checks literals: Time t = "10epp" does not compile. Counts are exact 64-bit integers, shares are
// doubles. Negative times, and shares below 0 or above 1, are valid; options state which times they allow.
class COMPOSER_EXPORT Time {
 public:
  constexpr Time(std::int64_t value, TimeUnit unit)
      : bits_(unit == TimeUnit::DURATION ? std::bit_cast<std::int64_t>(static_cast<double>(value)) : value),
        unit_(unit) {}
  Time(std::floating_point auto value, TimeUnit unit) = delete;  // would be truncated; use from()
  template <std::size_t N>
  consteval Time(const char (&literal)[N]) : Time(detail::parse_time(std::string_view(literal, N - 1))) {}

  // Parses text that is known only at run time. Throws TimeSyntaxError, TimeTypeError ("1.5ep") or TimeRangeError.
  static Time parse(std::string_view text) { return Time(detail::parse_time(text)); }
  // Throws TimeTypeError unless the unit is DURATION: all other units are counted in whole numbers.
  static Time from(double value, TimeUnit unit);

  constexpr TimeUnit unit() const { return unit_; }
  // Throws TimeUnitError for a DURATION, which has no count.
  constexpr std::int64_t count() const { return unit_ == TimeUnit::DURATION ? throw_no_count() : bits_; }
  // A share, or a count rounded to a double.
  constexpr double as_double() const {
    return unit_ == TimeUnit::DURATION ? std::bit_cast<double>(bits_) : static_cast<double>(bits_);
  }

 private:
  friend class Interval;
  constexpr explicit Time(const detail::ParsedTime& parsed)
      : bits_(parsed.unit == TimeUnit::DURATION ? std::bit_cast<std::int64_t>(parsed.share) : parsed.count),
        unit_(parsed.unit) {}
  [[noreturn]] std::int64_t throw_no_count() const;

  std::int64_t bits_;  // a count, or the bits of a share
  TimeUnit unit_;
};

// "10ep" or "0.5dur". Time::parse() of the text gives the same time.
COMPOSER_EXPORT std::string to_string(Time time);
COMPOSER_EXPORT std::ostream& operator<<(std::ostream& out, Time time);

// Times of one unit can be added and compared; a number that is combined with a time has its unit. Mixed units throw
// TimeUnitError, also for == and !=; results beyond 64 bits throw TimeRangeError.
COMPOSER_EXPORT bool operator==(Time a, Time b);
COMPOSER_EXPORT std::partial_ordering operator<=>(Time a, Time b);
COMPOSER_EXPORT Time operator+(Time a, Time b);
COMPOSER_EXPORT Time operator-(Time a, Time b);
COMPOSER_EXPORT Time operator-(Time a);
constexpr Time operator+(Time a) { return a; }
// One of the two must be a DURATION. The result has the unit of the other one, and is truncated towards zero. The
// product is computed in doubles: 0.29 of 100ba is 28ba.
COMPOSER_EXPORT Time operator*(Time a, Time b);
COMPOSER_EXPORT Time operator*(Time a, std::int64_t k);
COMPOSER_EXPORT Time operator*(Time a, double k);
// The quotient of two times of one unit, as a share.
COMPOSER_EXPORT Time operator/(Time a, Time b);
COMPOSER_EXPORT Time operator/(Time a, std::int64_t k);
COMPOSER_EXPORT Time operator/(Time a, double k);
// The remainder; it is 0 or has the sign of `b`.
COMPOSER_EXPORT Time operator%(Time a, Time b);

namespace detail {
template <Number N>
Time in_unit(N value, TimeUnit unit) {
  if constexpr (std::integral<N>)
    return Time(static_cast<std::int64_t>(value), unit);
  else
    return Time::from(value, unit);
}
template <class N>
using Factor = std::conditional_t<std::integral<N>, std::int64_t, double>;
}  // namespace detail

template <Number N>
bool operator==(Time a, N b) {
  return a == detail::in_unit(b, a.unit());
}
template <Number N>
std::partial_ordering operator<=>(Time a, N b) {
  return a <=> detail::in_unit(b, a.unit());
}
template <Number N>
Time operator+(Time a, N b) {
  return a + detail::in_unit(b, a.unit());
}
template <Number N>
Time operator+(N a, Time b) {
  return detail::in_unit(a, b.unit()) + b;
}
template <Number N>
Time operator-(Time a, N b) {
  return a - detail::in_unit(b, a.unit());
}
template <Number N>
Time operator-(N a, Time b) {
  return detail::in_unit(a, b.unit()) - b;
}
template <Number N>
Time operator*(Time a, N k) {
  return a * static_cast<detail::Factor<N>>(k);
}
template <Number N>
Time operator*(N k, Time a) {
  return a * static_cast<detail::Factor<N>>(k);
}
template <Number N>
Time operator/(Time a, N k) {
  return a / static_cast<detail::Factor<N>>(k);
}
template <Number N>
Time operator%(Time a, N b) {
  return a % detail::in_unit(b, a.unit());
}

namespace detail {
// Types that are passed as a time by mistake. Constructors for them are deleted rather than absent, so that the
// compiler names this option and not the whole options struct.
template <class T>
concept NotATime = Number<T> ||(std::convertible_to<const T&, std::string_view> && !std::is_array_v<T>);
}  // namespace detail

// A time that an option may leave unset: .max_duration = "10ep".
class OptionalTime : public std::optional<Time> {
 public:
  constexpr OptionalTime() = default;
  constexpr OptionalTime(std::nullopt_t) {}
  constexpr OptionalTime(Time time) : optional(time) {}
  constexpr OptionalTime(std::optional<Time> time) : optional(time) {}
  template <std::size_t N>
  consteval OptionalTime(const char (&literal)[N]) : optional(Time(literal)) {}
  template <detail::NotATime T>
  OptionalTime(const T&) = delete;  // a time has a unit: "10ep"; text that is read at run time: Time::parse(text)
};

using Seconds = std::chrono::duration<double>;

// The position of training, as a value: the trainer replaces it, and nobody modifies it. Fields have the names used in
// checkpoints.
struct Timestamp {
  std::int64_t iteration = 0, epoch = 0, batch = 0, sample = 0, token = 0;
  std::int64_t epoch_in_iteration = 0, token_in_iteration = 0;
  std::int64_t batch_in_epoch = 0, sample_in_epoch = 0, token_in_epoch = 0;
  Seconds total_wct{}, iteration_wct{}, epoch_wct{}, batch_wct{};  // seconds of wall time spent in training

  // `samples` and `tokens` are sums over all ranks; `duration` is the time that the batch took.
  constexpr Timestamp to_next_batch(std::int64_t samples = 0, std::int64_t tokens = 0, Seconds duration = {}) const {
    Timestamp t = *this;
    t.batch += 1, t.batch_in_epoch += 1;
    t.sample += samples, t.sample_in_epoch += samples;
    t.token += tokens, t.token_in_epoch += tokens, t.token_in_iteration += tokens;
    t.total_wct += duration, t.iteration_wct += duration, t.epoch_wct += duration, t.batch_wct = duration;
    return t;
  }
  constexpr Timestamp to_next_epoch(Seconds duration = {}) const {
    Timestamp t = *this;
    t.epoch += 1, t.epoch_in_iteration += 1;
    t.batch_in_epoch = t.sample_in_epoch = t.token_in_epoch = 0;
    t.total_wct += duration, t.iteration_wct += duration, t.epoch_wct = t.batch_wct = Seconds{};
    return t;
  }
  // Does not count an epoch that ends together with the iteration.
  constexpr Timestamp to_next_iteration(Seconds duration = {}) const {
    Timestamp t = *this;
    t.iteration += 1;
    t.epoch_in_iteration = t.token_in_iteration = 0;
    t.batch_in_epoch = t.sample_in_epoch = t.token_in_epoch = 0;
    t.total_wct += duration, t.iteration_wct = t.epoch_wct = t.batch_wct = Seconds{};
    return t;
  }

  // The total in this unit; seconds are truncated to whole ones. Throws TimeUnitError for DURATION.
  COMPOSER_EXPORT Time get(TimeUnit unit) const;
  bool reached(Time limit) const { return get(limit.unit()) >= limit; }

  friend bool operator==(const Timestamp&, const Timestamp&) = default;
};

}  // namespace composer
