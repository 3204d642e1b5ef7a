#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "composer/core/event.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer {

struct State;

// The boundary that was just crossed. Intervals in epochs are due at the end of epochs, those in iterations at the end
// of iterations, and all others at the end of batches.
enum class Boundary : std::uint8_t { BATCH, EPOCH, ITERATION };

struct IntervalMoment {
  std::optional<Boundary> boundary;  // unset: none, as when a fit has ended
  bool last = false;                 // training ends here: the interval is due, unless it already was at this batch
  Timestamp previous, now;           // timestamps before and after the boundary was counted
  std::int64_t last_due_batch = -1;  // now.batch when the interval was last due; -1: never
  OptionalTime max_duration;         // for intervals that are shares of it
  std::optional<std::int64_t> dataloader_len;  // for intervals that are shares of the run
};

// Whether something that happens every `interval` is due, because the interval or a multiple of it was crossed. A share
// of the run is due every ceil(share * run) batches, samples or tokens. An interval of 0 or less is never due. Throws
// ConfigError for a share of a run whose length in batches is unknown.
COMPOSER_EXPORT bool interval_due(Time interval, const IntervalMoment& moment);

// How often something happens: a time, a number of epochs that is not whole ("0.25ep": four times in each epoch, at the
// ends of batches), or a function that is called at every event at which it could be due. The raw pointer makes this a
// literal type, so that the compiler checks intervals written as text.
class COMPOSER_EXPORT Interval {
 public:
  using Function = std::function<bool(Event event, const State& state)>;

  template <std::size_t N>
  consteval Interval(const char (&literal)[N]) : Interval(detail::parse_interval(std::string_view(literal, N - 1))) {}
  constexpr Interval(Time time) : time_(time) {}
  template <class F>
  requires std::constructible_from<Function, F> &&
      (!std::convertible_to<F, Time>)&&(!std::same_as<std::remove_cvref_t<F>, Interval>)Interval(F&& function)
      : time_(0, TimeUnit::EPOCH), function_(new Function(std::forward<F>(function))) {}
  template <detail::NotATime T>
  Interval(const T&) = delete;  // a time has a unit: "10ep"; text that is read at run time: Time::parse(text)
  constexpr Interval(const Interval& other)
      : time_(other.time_), epochs_(other.epochs_), function_(copy(other.function_)) {}
  constexpr Interval(Interval&& other) noexcept
      : time_(other.time_), epochs_(other.epochs_), function_(std::exchange(other.function_, nullptr)) {}
  constexpr Interval& operator=(Interval other) noexcept {
    time_ = other.time_;
    epochs_ = other.epochs_;
    std::swap(function_, other.function_);
    return *this;
  }
  constexpr ~Interval() { delete function_; }

  // Parses text that is known only at run time. Throws what Time::parse() throws.
  static Interval parse(std::string_view text) { return Interval(detail::parse_interval(text)); }

  const Function* function() const { return function_; }  // nullptr: the interval is a time, or a number of epochs
  constexpr double epochs() const { return epochs_; }     // a number of epochs that is not whole; 0: it is a time
  constexpr Time time() const { return time_; }           // epochs() is rounded up: "0.25ep" is "1ep" here

 private:
  constexpr explicit Interval(const detail::ParsedInterval& parsed) : time_(parsed.time), epochs_(parsed.epochs) {}
  static constexpr Function* copy(const Function* function) { return function ? new Function(*function) : nullptr; }

  Time time_;
  double epochs_ = 0;
  Function* function_ = nullptr;
};

// "10ep", "0.25ep", or "a function".
COMPOSER_EXPORT std::string to_string(const Interval& interval);
// Whether the interval is due at this event; see interval_due(). Throws ConfigError for a number of epochs that is not
// whole, if the length of epochs is unknown.
COMPOSER_EXPORT bool is_due(const Interval& interval, Event event, const State& state, const IntervalMoment& moment);

// An interval that an option may leave unset: .eval_interval = "500ba".
class OptionalInterval : public std::optional<Interval> {
 public:
  constexpr OptionalInterval() = default;
  constexpr OptionalInterval(std::nullopt_t) {}
  constexpr OptionalInterval(Interval interval) : optional(std::move(interval)) {}
  constexpr OptionalInterval(Time time) : optional(Interval(time)) {}
  template <std::size_t N>
  consteval OptionalInterval(const char (&literal)[N]) : optional(Interval(literal)) {}
  template <detail::NotATime T>
  OptionalInterval(const T&) = delete;  // see Interval
};

}  // namespace composer
