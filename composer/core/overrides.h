#pragma once
// Finds at compile time which events a callback type listens to, so that the engine never calls an empty method.
#include <concepts>
#include <type_traits>

#include "composer/core/algorithm.h"
#include "composer/core/callback.h"
#include "composer/core/logger.h"

namespace composer {
namespace detail {

template <class>
struct Method;
template <class C, class R, class... A>
struct Method<R (C::*)(A...)> {
  using Owner = C;
  using Signature = R(A...);
};
template <class C, class R, class... A>
struct Method<R (C::*)(A...) noexcept> : Method<R (C::*)(A...)> {};
template <class C, class R, class... A>
struct Method<R (C::*)(A...) const> {
  using Owner = C;
  using Signature = R(A...) const;
};
template <class C, class R, class... A>
struct Method<R (C::*)(A...) const noexcept> : Method<R (C::*)(A...) const> {};

// A method is overridden unless its name still refers to the base's method.
template <class Theirs, class Ours>
consteval bool overrides() {
  static_assert(std::is_same_v<typename Method<Theirs>::Signature, typename Method<Ours>::Signature>,
                "this method hides one of Callback, Algorithm or LoggerDestination without overriding it: compare the "
                "parameters, the result and const");
  return !std::is_same_v<typename Method<Theirs>::Owner, typename Method<Ours>::Owner>;
}

// For a class whose base overrides log_record(), which gets whole records: the methods for single kinds of records are
// not called.
template <class T>
consteval void check_receiver() {
  if constexpr (requires { &T::log_record; }) {
    using Receiver = typename Method<decltype(&T::log_record)>::Owner;
#define COMPOSER_X(method)                                                                                   \
  if constexpr (requires { &T::method; }) {                                                                  \
    using Owner = typename Method<decltype(&T::method)>::Owner;                                              \
    static_assert(std::is_same_v<Receiver, LoggerDestination> || std::is_same_v<Owner, LoggerDestination> || \
                      std::derived_from<Receiver, Owner>,                                                    \
                  #method                                                                                    \
                  "() is not called, because a base of the class overrides log_record(): override that, "    \
                  "and hand on Record::with() where entries change");                                        \
  }
    COMPOSER_X(log_metrics)
    COMPOSER_X(log_hyperparameters)
    COMPOSER_X(log_images)
    COMPOSER_X(log_table)
    COMPOSER_X(log_histogram)
    COMPOSER_X(upload_file)
    COMPOSER_X(log_traces)
#undef COMPOSER_X
  }
}

// Checks the other methods that are called by name. A method that cannot be named from here is skipped. Each virtual
// method of the three classes is listed; scripts/overrides.py compares.
template <class T>
consteval void check_overrides() {  // NOLINT(readability-function-cognitive-complexity): one branch a method
#define COMPOSER_X(base, method)                                      \
  if constexpr (requires { &T::method; }) {                           \
    (void)overrides<decltype(&T::method), decltype(&base::method)>(); \
  }
  if constexpr (std::derived_from<T, Callback>) {
    COMPOSER_X(Callback, local_hparams)
    COMPOSER_X(Callback, visit_state)
    COMPOSER_X(Callback, check_fit)
    COMPOSER_X(Callback, close)
    COMPOSER_X(Callback, post_close)
  }
  if constexpr (std::derived_from<T, LoggerDestination>) {
    COMPOSER_X(LoggerDestination, log_record)
    COMPOSER_X(LoggerDestination, log_metrics)
    COMPOSER_X(LoggerDestination, log_hyperparameters)
    COMPOSER_X(LoggerDestination, log_images)
    COMPOSER_X(LoggerDestination, log_table)
    COMPOSER_X(LoggerDestination, log_histogram)
    COMPOSER_X(LoggerDestination, upload_file)
    COMPOSER_X(LoggerDestination, log_traces)
    COMPOSER_X(LoggerDestination, wants_traces)
    COMPOSER_X(LoggerDestination, flush)
    check_receiver<T>();
  }
  if constexpr (std::derived_from<T, Algorithm>) {
    COMPOSER_X(Algorithm, events)
    COMPOSER_X(Algorithm, match)
    COMPOSER_X(Algorithm, apply)
    COMPOSER_X(Algorithm, local_hparams)
    COMPOSER_X(Algorithm, visit_state)
    COMPOSER_X(Algorithm, placement)
    COMPOSER_X(Algorithm, required_on_load)
    COMPOSER_X(Algorithm, mixes_targets)
    COMPOSER_X(Algorithm, interpolates_loss)
    COMPOSER_X(Algorithm, takes_part_in_trials)
    COMPOSER_X(Algorithm, step_rule)
    COMPOSER_X(Algorithm, weights_for)
  }
#undef COMPOSER_X
}

}  // namespace detail

// A method that cannot be named from here (private or overloaded) counts as overridden.
template <std::derived_from<Callback> T>
constexpr EventSet events_of() {  // NOLINT(readability-function-cognitive-complexity): one branch an event
  detail::check_overrides<T>();
  if constexpr (!requires { &T::run_event; }) {
    return EventSet::all();
  } else if constexpr (detail::overrides<decltype(&T::run_event), decltype(&Callback::run_event)>()) {
    return EventSet::all();
  } else {
    EventSet set;
#define COMPOSER_X(NAME, method, kind)                                                           \
  if constexpr (!requires { &T::method; }) {                                                     \
    set.insert(Event::NAME);                                                                     \
  } else if constexpr (detail::overrides<decltype(&T::method), decltype(&Callback::method)>()) { \
    set.insert(Event::NAME);                                                                     \
  }
    COMPOSER_EVENTS(COMPOSER_X)
#undef COMPOSER_X
    return set;
  }
}

}  // namespace composer
