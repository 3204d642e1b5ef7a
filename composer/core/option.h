#pragma once
// Describes the fields of an options struct, each once and in their order:
//
//   std::vector<Option<TrainerOptions>> trainer_options() {
//     using O = TrainerOptions;
//     return all_options(part("model", &O::model, "a module").told(tell_model),
//                        option("max_duration", &O::max_duration).unit("ep, ba, sp or tok").compared(Compared::BY_FIT),
//                        option("grace_period", &O::grace_period).above(0,
//                        "seconds").free(kOfMachine).unlogged(kEnds));
//   }
//
// all_options() does not compile unless every field is there. What is not said is what is safe: ranks that train
// together must agree, and the field is a hyperparameter, which is logged, saved in checkpoints, and told when a run
// goes on with another value.
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "composer/core/by_name.h"
#include "composer/core/error.h"
#include "composer/core/export.h"
#include "composer/core/interval.h"
#include "composer/core/registry.h"
#include "composer/core/state_dict.h"
#include "composer/core/time.h"

namespace composer {

// When ranks that train together compare what they were given.
enum class Compared : std::uint8_t {
  AT_FIT,    // when a fit begins
  AT_INIT,   // before INIT
  AT_BOTH,   // then, and when a fit begins
  IF_SPLIT,  // when a fit begins, if ranks take slices of the same batches
  BY_FIT,    // by what a fit or a call makes of it
  NEVER,     // OptionRules::free says why
};

struct OptionRules {
  std::string unit = {};  // "samples", or of a time "ep or tok"
  std::string must = {};  // be what, in an error: "be > 0 seconds"; empty: whatever the type can be
  Compared compared = Compared::AT_FIT;
  bool left_to_first = false;  // a rank that leaves it empty has that of rank 0
  std::string free = {};       // why ranks may differ
  std::string unlogged = {};   // why it is no hyperparameter; empty: it is one
};

// What the values of some options are told from in addition, because a run makes them its own.
template <class Options>
struct RunOf {
  struct Type {};
};

// As messages show it.
COMPOSER_EXPORT std::string text_of(const StateValue& value);

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
COMPOSER_EXPORT void read_text(const std::string& text, std::optional<std::uint64_t>& value);
COMPOSER_EXPORT void read_text(const std::string& text, std::optional<bool>& value);
COMPOSER_EXPORT void read_text(const std::string& text, std::vector<std::string>& value);  // separated by commas

template <class T>
concept HasText = requires(T& value) {
  read_text(std::string(), value);
};

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
COMPOSER_EXPORT std::string to_text(const std::optional<std::uint64_t>& value);
COMPOSER_EXPORT std::string to_text(const std::optional<bool>& value);
COMPOSER_EXPORT std::string to_text(const std::vector<std::string>& value);

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
  if constexpr (std::same_as<T, bool> || std::same_as<T, std::optional<bool>>) return "true or false";
  if constexpr (std::same_as<T, double> || std::same_as<T, Seconds>) return "number";
  if constexpr (std::same_as<T, std::int64_t> || std::same_as<T, std::optional<std::int64_t>> ||
                std::same_as<T, std::optional<std::uint64_t>>)
    return "whole number";
  if constexpr (std::same_as<T, Time> || std::same_as<T, Interval> || std::same_as<T, OptionalTime>) return "time";
  return "text";
}

// The value of an option; null: it is unset.
template <class T>
const T* held(const T& value) {
  return &value;
}
template <class T>
const T* held(const std::optional<T>& value) {
  return value ? &*value : nullptr;
}
inline const Time* held(const OptionalTime& value) { return value ? &*value : nullptr; }

template <class T>
using Held = std::remove_cvref_t<decltype(*held(std::declval<const T&>()))>;

template <class T>
double number_of(const T& value) {
  if constexpr (std::same_as<T, Seconds>)
    return value.count();
  else
    return static_cast<double>(value);
}

// Whether the aggregate has fields of these types, in this order, and no others.
template <class Options, class... T>
concept Takes = requires {
  Options{std::declval<T>()...};
};
template <class Options, class... T>
concept TakesMore = requires {
  Options{std::declval<T>()..., {}};
}
|| Takes<Options, T..., Interval>;
template <class Options, class... T>
concept HasFields = (Takes<Options, T...> && !TakesMore<Options, T...>) ||
                    (Takes<Options, ByName, T...> && !TakesMore<Options, ByName, T...>);

}  // namespace detail

template <class Options>
struct Option : OptionInfo {
  using Tell = std::function<void(StateDict& into, const Options& options, const typename RunOf<Options>::Type& run)>;

  std::function<void(Options&, const std::string&)> read;  // null: it has no text form, and `type` says what it is
  std::function<StateValue(const Options&)> value;         // null: likewise
  OptionRules rules = {};
  std::function<bool(const Options&)> holds = {};  // whether it is as `must` says; null: it always is
  Tell tell = {};                                  // its hyperparameters; null: `value`, under its name

  bool is_logged() const { return rules.unlogged.empty(); }
  void tell_to(StateDict& into, const Options& options, const typename RunOf<Options>::Type& run) const {
    if (tell)
      tell(into, options, run);
    else if (value)
      into[name] = value(options);
  }
};

// An option of this type: says what is not as usual.
template <class Options, class T>
struct Field : Option<Options> {
  T Options::*member = nullptr;

  // Of a plug-in that is made by text: one that must be given, and texts that are refused.
  Field example(std::string text) && {
    OptionInfo::example = std::move(text);
    return std::move(*this);
  }
  Field refuses(std::vector<std::string> texts) && {
    this->refused = std::move(texts);
    return std::move(*this);
  }

  Field unit(std::string unit) && {
    this->rules.unit = std::move(unit);
    return std::move(*this);
  }
  // A number's range. A value that is unset is always allowed.
  Field at_least(double low, std::string unit = {}) && {
    return std::move(*this).bounded(
        ">= ", low, [low](double number) { return number >= low; }, std::move(unit));
  }
  Field above(double low, std::string unit = {}) && {
    return std::move(*this).bounded(
        "> ", low, [low](double number) { return number > low; }, std::move(unit));
  }
  // After these: another value that is allowed, and what it means.
  Field or_else(double other, const std::string& meaning) && {
    this->rules.must += join(", or ", other, " for ", meaning);
    this->holds = [member = member, in_range = std::move(this->holds), other](const Options& options) {
      const auto* value = detail::held(options.*member);
      return !value || detail::number_of(*value) == other || in_range(options);
    };
    return std::move(*this);
  }
  // Any other rule: must("be 1 or 2", [](std::int64_t value) { ... }).
  template <class Rule>
  Field must(std::string rule, Rule holds) && {
    this->rules.must = std::move(rule);
    this->holds = [member = member, holds = std::move(holds)](const Options& options) {
      const auto* value = detail::held(options.*member);
      return !value || holds(*value);
    };
    return std::move(*this);
  }

  Field compared(Compared when) && {
    this->rules.compared = when;
    return std::move(*this);
  }
  Field left_to_first() && {
    this->rules.left_to_first = true;
    return std::move(*this);
  }
  Field free(std::string why) && {  // ranks may differ
    this->rules.compared = Compared::NEVER;
    this->rules.free = std::move(why);
    return std::move(*this);
  }
  Field unlogged(std::string why) && {  // it is no hyperparameter
    this->rules.unlogged = std::move(why);
    return std::move(*this);
  }

  // Another text or number than usual.
  template <class Show>
  Field shown(Show show) && {
    this->value = [member = member, show = std::move(show)](const Options& options) -> StateValue {
      return show(options.*member);
    };
    return std::move(*this);
  }
  // Text to value, for a type that option() does not know.
  template <class Read>
  Field read_by(Read read) && {
    this->read = [member = member, read = std::move(read)](Options& options, const std::string& text) {
      options.*member = read(text);
    };
    return std::move(*this);
  }
  // Hyperparameters of several names, or of what the run has made of it.
  Field told(typename Option<Options>::Tell tell) && {
    this->tell = std::move(tell);
    return std::move(*this);
  }

 private:
  template <class InRange>
  Field bounded(const char* relation, double low, InRange in_range, std::string unit) && {
    const std::string rule = join("be ", relation, low, unit.empty() ? "" : " ", unit);
    this->rules.unit = std::move(unit);
    return std::move(*this).must(rule, [in_range](const auto& value) { return in_range(detail::number_of(value)); });
  }
};

// A member of an options struct: a text, path, double, bool, Seconds, Interval, list of texts, or a whole number, bool
// or Time that may be optional.
template <class Options, class T>
Field<Options, T> option(std::string name, T Options::*member) {
  static_assert(
      detail::HasText<T>,
      "an option is a std::string, std::filesystem::path, double, bool, std::int64_t, Seconds, Time, Interval, "
      "std::vector<std::string>, OptionalTime, or std::optional of a std::int64_t, std::uint64_t, bool or Time; "
      "an enum needs its values with their names as a third argument");
  if constexpr (detail::HasText<T>)
    return {{{std::move(name), detail::type_name<T>(), detail::to_text(Options{}.*member)},
             [member](Options& options, const std::string& text) { detail::read_text(text, options.*member); },
             [member](const Options& options) { return detail::to_value(options.*member); }},
            member};
  else
    return {{}, member};
}

// An enum, or anything else of a few values that have names.
template <class Options, class T>
Field<Options, T> option(std::string name, T Options::*member,
                         std::vector<std::pair<std::string, std::type_identity_t<T>>> values) {
  OptionInfo info{std::move(name), {}, {}};
  for (const auto& [text, value] : values) {
    info.type += (info.type.empty() ? "" : " or ") + text;
    if (value == Options{}.*member) info.default_text = text;
  }
  return {{info,
           [member, values, type = info.type](Options& options, const std::string& text) {
             for (const auto& [known, value] : values)
               if (known == text) return void(options.*member = value);
             throw ConfigError("expected ", type, ", got \"", text, '"');
           },
           [member, values](const Options& options) -> StateValue {
             for (const auto& [text, value] : values)
               if (value == options.*member) return text;
             return std::string("?");
           }},
          member};
}

// What no text stands for: `what` says why, as "a module".
template <class Options, class T>
Field<Options, T> part(std::string name, T Options::*member, std::string what) {
  return {{{std::move(name), std::move(what)}, nullptr, nullptr}, member};
}

template <class Options, class... T>
std::vector<Option<Options>> all_options(Field<Options, T>... fields) {
  static_assert(detail::HasFields<Options, T...>,
                "describe every field of the struct here, in the order of their declarations");
  std::vector<Option<Options>> all;
  all.reserve(sizeof...(T));
  (all.push_back(std::move(fields)), ...);
  return all;
}

// Throws ConfigError for the first value that is not as its option says: "`who`size: must be > 0 seconds, got -1".
template <class Options>
void check(const Options& options, const std::vector<Option<Options>>& list, const std::string& who = {},
           const char* after_name = ":") {
  for (const Option<Options>& option : list)
    if (option.holds && !option.holds(options))
      throw ConfigError(who, option.name, after_name, " must ", option.rules.must, ", got ",
                        text_of(option.value(options)));
}

// The options by name: for local_hparams() of a plug-in.
template <class Options>
StateDict describe(const Options& options, const std::vector<Option<Options>>& list) {
  detail::check_names("describe", list);
  StateDict described;
  for (const auto& option : list)
    if (option.is_logged()) described[option.name] = option.value(options);
  return described;
}

}  // namespace composer
