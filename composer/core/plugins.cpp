#include "composer/core/plugins.h"

#include <cstdlib>
#include <cxxabi.h>

#include "composer/core/call_watcher.h"
#include "composer/core/divided_gradients.h"
#include "composer/core/error.h"
#include "composer/core/error_watcher.h"
#include "composer/core/for_all_ranks.h"
#include "composer/core/load_check.h"

namespace composer {
namespace {

// Removes everything before the last :: that is not inside template brackets.
std::string without_namespaces(const std::string& name) {
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 1;) {
    if (name[i] == '>') ++depth;
    if (name[i] == '<') --depth;
    if (depth == 0 && name[i] == ':' && name[i - 1] == ':') return name.substr(i + 1);
  }
  return name;
}

}  // namespace

std::string class_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? without_namespaces(text.get()) : type.name();
}

std::string detail::name_of(const Callback& callback) {
  const auto* of_event = dynamic_cast<const EventCallback*>(&callback);
  return of_event ? of_event->name() : class_name(typeid(callback));
}

namespace {

template <class Base>
Interfaces found_in(Base& plugin) {
  return {.call_watcher = dynamic_cast<CallWatcher*>(&plugin),
          .divided_gradients = dynamic_cast<DividedGradients*>(&plugin),
          .error_watcher = dynamic_cast<ErrorWatcher*>(&plugin),
          .for_all_ranks = dynamic_cast<ForAllRanks*>(&plugin),
          .load_check = dynamic_cast<LoadCheck*>(&plugin),
          .logger = dynamic_cast<LoggerDestination*>(&plugin)};
}

}  // namespace

Interfaces detail::interfaces_of(Callback& callback) { return found_in(callback); }
Interfaces detail::interfaces_of(Algorithm& algorithm) { return found_in(algorithm); }

template <class Base>
void Plugins<Base>::check(const Base* object) {
  if (!object) throw ConfigError("callbacks, algorithms, loggers: a null pointer was given");
  if constexpr (std::same_as<Base, Callback>)
    if (dynamic_cast<const LoggerDestination*>(object))
      throw ConfigError("callbacks: ", class_name(typeid(*object)), " is a logger; give it to .loggers");
}

template COMPOSER_EXPORT void Plugins<Callback>::check(const Callback*);
template COMPOSER_EXPORT void Plugins<LoggerDestination>::check(const LoggerDestination*);
template COMPOSER_EXPORT void Plugins<Algorithm>::check(const Algorithm*);

}  // namespace composer
