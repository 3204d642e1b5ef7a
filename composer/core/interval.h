#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <variant>

#include "composer/core/event.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer {

struct State;

// What has just ended: intervals in epochs are due at the end of epochs, in iterations at the end of iterations, all
// others at the end of batches.
enum class Boundary : std::uint8_t { BATCH, EPOCH, ITERATION };

struct IntervalMoment {
  std::optional<Boundary> boundary;  // unset: none, as when a fit has ended
  bool last = false;                 // training ends here: due whatever the interval, unless it was at this batch
  Timestamp previous, now;           // before and after what has just ended was counted
  std::int64_t last_due_batch = -1;  // now.batch when it was due last; -1: never
  OptionalTime max_duration;         // for intervals in shares of it
  std::optional<std::int64_t> dataloader_len;  // likewise
};

// Whether something that happens every `interval` is due: the interval, or a multiple of it, was crossed. A share of
// the run is due every ceil(share * run) batches, samples or tokens. An interval of 0 or less is never due. Throws
// ConfigError for a share of a run whose length in batches is unknown.
COMPOSER_EXPORT bool interval_due(Time interval, const IntervalMoment& moment);

// How often: a time, or a function that is asked at every event at which the answer could be yes. The raw pointer makes
// it a literal type, so that intervals written as text are checked by the compiler.
class COMPOSER_EXPORT Interval {
 public:
  using Function = std::function<bool(Event event, const State& state)>;

  template <std::size_t N>
  consteval Interval(const char (&literal)[N]) : time_(literal) {}
  constexpr Interval(Time time) : time_(time) {}
  template <class F>
  requires std::constructible_from<Function, F> &&
      (!std::convertible_to<F, Time>)&&(!std::same_as<std::remove_cvref_t<F>, Interval>)Interval(F&& function)
      : time_(0, TimeUnit::EPOCH), function_(new Function(std::forward<F>(function))) {}
  template <detail::NotATime T>
  Interval(const T&) = delete;  // a time has a unit: "10ep"; text that is read at run time: Time::parse(text)
  constexpr Interval(const Interval& other) : time_(other.time_), function_(copy(other.function_)) {}
  constexpr Interval(Interval&& other) noexcept
      : time_(other.time_), function_(std::exchange(other.function_, nullptr)) {}
  constexpr Interval& operator=(Interval other) noexcept {
    time_ = other.time_;
    std::swap(function_, other.function_);
    return *this;
  }
  constexpr ~Interval() { delete function_; }

  const Function* function() const { return function_; }  // nullptr: it is a time
  constexpr Time time() const { return time_; }

 private:
  static constexpr Function* copy(const Function* function) { return function ? new Function(*function) : nullptr; }

  Time time_;
  Function* function_ = nullptr;
};

// An interval that an option may leave out: .eval_interval = "500ba".
class OptionalInterval : public std::optional<Interval> {
 public:
  constexpr OptionalInterval() = default;
  constexpr OptionalInterval(std::nullopt_t) {}
  constexpr OptionalInterval(Interval interval) : optional(std::move(interval)) {}
  constexpr OptionalInterval(Time time) : optional(Interval(time)) {}
  template <std::size_t N>
  consteval OptionalInterval(const char (&literal)[N]) : optional(Interval(literal)) {}
  template <detail::NotATime T>
  OptionalInterval(const T&) = delete;  // as in Interval
};

}  // namespace composer
