#pragma once
// Describes a plug-in for its module's registry, in the plug-in's own source:
//
//   namespace {
//   std::vector<Option<EarlyStopperOptions>> early_stopper_options() {
//     using O = EarlyStopperOptions;
//     return {option("monitor", &O::monitor).example("MulticlassAccuracy"),
//             option("patience", &O::patience).refuses({"3sp"})};
//   }
//   }  // namespace
//
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
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/export.h"
#include "composer/core/interval.h"
#include "composer/core/metric.h"
#include "composer/core/plugins.h"
#include "composer/core/registry.h"
#include "composer/core/state_dict.h"
#include "composer/core/time.h"

namespace composer {

namespace detail {

// Text to value; they throw ConfigError that says what was expected. An empty text unsets what can be unset.
COMPOSER_EXPORT void read_text(const std::string& text, std::string& value);
COMPOSER_EXPORT void read_text(const std::string& text, std::filesystem::path& value);
COMPOSER_EXPORT void read_text(const std::string& text, double& value);
COMPOSER_EXPORT void read_text(const std::string& text, std::int64_t& value);
COMPOSER_EXPORT void read_text(const std::string& text, bool& value);
COMPOSER_EXPORT void read_text(const std::string& text, Time& value);
COMPOSER_EXPORT void read_text(const std::string& text, Interval& value);
COMPOSER_EXPORT void read_text(const std::string& text, Seconds& value);
COMPOSER_EXPORT void read_text(const std::string& text, std::optional<Time>& value);
COMPOSER_EXPORT void read_text(const std::string& text, std::optional<std::int64_t>& value);

COMPOSER_EXPORT std::string to_text(const std::string& value);
COMPOSER_EXPORT std::string to_text(const std::filesystem::path& value);
COMPOSER_EXPORT std::string to_text(double value);
COMPOSER_EXPORT std::string to_text(std::int64_t value);
COMPOSER_EXPORT std::string to_text(bool value);
COMPOSER_EXPORT std::string to_text(Time value);
COMPOSER_EXPORT std::string to_text(const Interval& value);
COMPOSER_EXPORT std::string to_text(Seconds value);
COMPOSER_EXPORT std::string to_text(const std::optional<Time>& value);
COMPOSER_EXPORT std::string to_text(const std::optional<std::int64_t>& value);

// Numbers, yes and no stay what they are; all else is text, "" if it is unset.
template <class T>
StateValue to_value(const T& value) {
  if constexpr (std::same_as<T, bool> || std::same_as<T, double> || std::same_as<T, std::int64_t>) return value;
  if constexpr (std::same_as<T, Seconds>) return value.count();
  if constexpr (std::same_as<T, std::optional<std::int64_t>>)
    if (value) return *value;
  return to_text(value);
}

template <class T>
std::string type_name() {
  if constexpr (std::same_as<T, bool>) return "true or false";
  if constexpr (std::same_as<T, double> || std::same_as<T, Seconds>) return "number";
  if constexpr (std::same_as<T, std::int64_t> || std::same_as<T, std::optional<std::int64_t>>) return "whole number";
  if constexpr (std::same_as<T, Time> || std::same_as<T, Interval> || std::same_as<T, OptionalTime>) return "time";
  return "text";
}

// Calls read, and says which plug-in and option it was if that throws.
COMPOSER_EXPORT void read_option(const std::string& plugin, const std::string& option,
                                 const std::function<void()>& read);

struct NoOptions {};

// The list that takes plug-ins of this type.
template <class T>
using ListOf =
    std::conditional_t<std::derived_from<T, LoggerDestination>, Loggers,
                       std::conditional_t<std::derived_from<T, Callback>, Callbacks,
                                          std::conditional_t<std::derived_from<T, Algorithm>, Algorithms, Metrics>>>;

}  // namespace detail

template <class Options>
struct Option : OptionInfo {
  std::function<void(Options&, const std::string&)> read;
  std::function<StateValue(const Options&)> value;

  Option example(std::string text) && {  // makes it one that must be given
    OptionInfo::example = std::move(text);
    return std::move(*this);
  }
  Option refuses(std::vector<std::string> texts) && {
    refused = std::move(texts);
    return std::move(*this);
  }
};

// A member of an options struct: a text, path, double, bool, Seconds, Interval, or a std::int64_t or Time that may be
// optional.
template <class Options, class T>
Option<Options> option(std::string name, T Options::*member) {
  return {{std::move(name), detail::type_name<T>(), detail::to_text(Options{}.*member)},
          [member](Options& options, const std::string& text) { detail::read_text(text, options.*member); },
          [member](const Options& options) { return detail::to_value(options.*member); }};
}

// An enum, or anything else of a few values that have names.
template <class Options, class T>
Option<Options> option(std::string name, T Options::*member,
                       std::vector<std::pair<std::string, std::type_identity_t<T>>> values) {
  OptionInfo info{std::move(name), {}, {}};
  for (const auto& [text, value] : values) {
    info.type += (info.type.empty() ? "" : " or ") + text;
    if (value == Options{}.*member) info.default_text = text;
  }
  return {info,
          [member, values, type = info.type](Options& options, const std::string& text) {
            for (const auto& [known, value] : values)
              if (known == text) return void(options.*member = value);
            throw ConfigError("expected ", type, ", got \"", text, '"');
          },
          [member, values](const Options& options) -> StateValue {
            for (const auto& [text, value] : values)
              if (value == options.*member) return text;
            return std::string("?");
          }};
}

// The options by name: for local_hparams() of a plug-in.
template <class Options>
StateDict describe(const Options& options, const std::vector<Option<Options>>& list) {
  StateDict described;
  for (const auto& option : list) described[option.name] = option.value(options);
  return described;
}

// A plug-in whose constructor takes Options, or nothing.
template <class T, class Options = detail::NoOptions, class List = detail::ListOf<T>>
Entry<List> entry(std::string name, std::string summary, std::vector<Option<Options>> options = {}) {
  auto add_to = [name, options](List& list, const Settings& settings) {
    std::vector<std::string> known;
    known.reserve(options.size());
    for (const auto& option : options) known.push_back(option.name);
    for (const auto& [key, text] : settings)
      if (std::ranges::find(known, key) == known.end()) detail::throw_unknown(name + " has no option", key, known);

    Options given{};
    for (const auto& option : options)
      if (const auto setting = settings.find(option.name); setting != settings.end())
        detail::read_option(name, option.name, [&] { option.read(given, setting->second); });
    if constexpr (std::same_as<Options, detail::NoOptions>)
      list.add(std::make_shared<T>());
    else
      list.add(std::make_shared<T>(std::move(given)));
  };
  return {std::move(name), std::move(summary), {options.begin(), options.end()}, std::move(add_to)};
}

}  // namespace composer
