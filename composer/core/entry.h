#pragma once
// Describes a plug-in for its module's registry, in the plug-in's own source:
//
//   namespace {
//   std::vector<Option<EarlyStopperOptions>> early_stopper_options() {
//     using O = EarlyStopperOptions;
//     return all_options(option("monitor", &O::monitor).example("MulticlassAccuracy").not_empty(),
//                        option("patience", &O::patience).at_least(0));
//   }
//   }  // namespace
//
//   EarlyStopper::EarlyStopper(EarlyStopperOptions options)
//       : options_(checked("EarlyStopper", std::move(options), early_stopper_options())) {}
//   StateDict EarlyStopper::local_hparams() const { return describe(options_, early_stopper_options()); }
//
//   namespace entries {
//   Entry<Callbacks> early_stopper() {
//     return entry<EarlyStopper>("early_stopper", "Stops when a metric no longer improves", early_stopper_options());
//   }
//   }  // namespace entries
//
// The module's registry.cpp declares it and lists it. Names in anonymous namespaces are unique within the folder, whose
// sources are compiled together: hence early_stopper_options().
#include <algorithm>
#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/option.h"
#include "composer/core/plugins.h"
#include "composer/core/registry.h"

namespace composer {

namespace detail {

// Calls read. If it throws, the error names the plug-in and the option.
COMPOSER_EXPORT void read_option(const std::string& plugin, const std::string& option,
                                 const std::function<void()>& read);

struct NoOptions {};

// Reads the options of a plug-in from text. Throws ConfigError for an unknown name, and for a text that is no value.
template <class Options>
Options read_options(const std::string& plugin, const std::vector<Option<Options>>& options, const Settings& settings) {
  std::vector<std::string> known;
  known.reserve(options.size());
  for (const auto& option : options) known.push_back(option.name);
  for (const auto& [key, text] : settings)
    if (std::ranges::find(known, key) == known.end()) throw_unknown(plugin + " has no option", key, known);

  Options given{};
  for (const auto& option : options)
    if (const auto setting = settings.find(option.name); setting != settings.end())
      read_option(plugin, option.name, [&] { option.read(given, setting->second); });
  return given;
}

// The list that accepts plug-ins of this type.
template <class T>
using ListOf =
    std::conditional_t<std::derived_from<T, LoggerDestination>, Loggers,
                       std::conditional_t<std::derived_from<T, Callback>, Callbacks,
                                          std::conditional_t<std::derived_from<T, Algorithm>, Algorithms, Metrics>>>;

}  // namespace detail

// Describes a plug-in whose constructor takes Options, or nothing. Options without a text form cannot be set by name.
// Throws ConfigError for two options with the same name.
template <class T, class Options = detail::NoOptions, class List = detail::ListOf<T>>
Entry<List> entry(std::string name, std::string summary, std::vector<Option<Options>> options = {}) {
  detail::check_names(name, options);
  std::erase_if(options, [](const Option<Options>& option) { return !option.read; });
  auto add_to = [name, options](List& list, const Settings& settings) {
    Options given = detail::read_options(name, options, settings);
    if constexpr (std::same_as<Options, detail::NoOptions>)
      list.add(std::make_shared<T>());
    else
      list.add(std::make_shared<T>(std::move(given)));
  };
  return {std::move(name), std::move(summary), {options.begin(), options.end()}, std::move(add_to)};
}

}  // namespace composer
