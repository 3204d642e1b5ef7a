#pragma once
#include <concepts>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "composer/core/algorithm.h"
#include "composer/core/export.h"
#include "composer/core/logger.h"
#include "composer/core/on.h"
#include "composer/core/overrides.h"

namespace composer {

// The name of a class without its namespaces, as it appears in errors and logs.
COMPOSER_EXPORT std::string class_name(const std::type_info& type);

class CallWatcher;
class DividedGradients;
class ErrorWatcher;
class ForAllRanks;
class LoadCheck;

// The interfaces that a plug-in implements besides its base class, determined when it is added to a list; null: not
// implemented.
struct Interfaces {
  CallWatcher* call_watcher = nullptr;
  DividedGradients* divided_gradients = nullptr;
  ErrorWatcher* error_watcher = nullptr;
  ForAllRanks* for_all_ranks = nullptr;
  LoadCheck* load_check = nullptr;
  LoggerDestination* logger = nullptr;
};

// A callback, algorithm or logger, as the engine stores it.
template <class Base>
struct Plugin {
  std::shared_ptr<Base> object;
  std::string name;       // name of its class, or "callback on BATCH_END"
  EventSet events;        // at which it is called
  Interfaces interfaces;  // those of `object`
};

namespace detail {

COMPOSER_EXPORT Interfaces interfaces_of(Callback& callback);
COMPOSER_EXPORT Interfaces interfaces_of(Algorithm& algorithm);

inline std::string name_of(const Algorithm& algorithm) { return class_name(typeid(algorithm)); }
COMPOSER_EXPORT std::string name_of(const Callback& callback);

template <class T, class Base>
concept IsOrPointsTo = std::derived_from<T, Base> ||
    (std::derived_from<typename T::element_type, Base>&& std::same_as<T, std::shared_ptr<typename T::element_type>>);

// A logger is also a callback, but in a list of callbacks it would not get any records.
template <class T, class Base>
concept PluginOf = IsOrPointsTo<std::remove_cvref_t<T>, Base> &&
    !(std::same_as<Base, Callback> && IsOrPointsTo<std::remove_cvref_t<T>, LoggerDestination>);

}  // namespace detail

// A list of callbacks, algorithms or loggers: {NaNMonitor(), EarlyStopper({.patience = "3ep"})}. Each is given by
// value, or as a shared_ptr by programs that use it themselves.
template <class Base>
class Plugins {
 public:
  Plugins() = default;
  // Accepts every type, and names the wrong one in the error. Without this constructor, the compiler would only report
  // that the trainer's options cannot be constructed.
  template <class... T>
  requires(sizeof...(T) > 0 && !(std::same_as<std::remove_cvref_t<T>, Plugins> || ...)) Plugins(T&&... objects) {
    static_assert((detail::PluginOf<T, Base> && ...),
                  "not a plug-in of this list: give objects, or std::shared_ptr to them, whose class derives publicly "
                  "from Callback (.callbacks), Algorithm (.algorithms) or LoggerDestination (.loggers)");
    if constexpr ((detail::PluginOf<T, Base> && ...)) (add(std::forward<T>(objects)), ...);
  }

  template <class T>
  requires std::derived_from<std::remove_cvref_t<T>, Base>
  void add(T&& object) { add(std::make_shared<std::remove_cvref_t<T>>(std::forward<T>(object))); }

  template <std::derived_from<Base> T>
  void add(std::shared_ptr<T> object) {
    static_assert(!std::same_as<Base, Callback> || !std::derived_from<T, LoggerDestination>,
                  "this is a logger: give it to .loggers, where it gets records as well as events");
    check(object.get());
    Base& seen = *object;
    EventSet events = EventSet::all();  // for a type known only at run time: assume that it listens to every event
    if constexpr (std::derived_from<Base, Algorithm> || std::derived_from<T, detail::EventCallback>) {
      detail::check_overrides<T>();
      events = object->events();
    } else {
      if (typeid(seen) == typeid(T)) events = events_of<T>();
    }
    std::string name = detail::name_of(seen);
    list_.push_back({std::move(object), std::move(name), events, detail::interfaces_of(seen)});
  }

  const std::vector<Plugin<Base>>& list() const { return list_; }
  std::size_t size() const { return list_.size(); }

 private:
  // Throws ConfigError for a null pointer, and for a logger in a list of callbacks.
  static void check(const Base* object);
  std::vector<Plugin<Base>> list_;
};

using Callbacks = Plugins<Callback>;
using Loggers = Plugins<LoggerDestination>;
using Algorithms = Plugins<Algorithm>;

}  // namespace composer
