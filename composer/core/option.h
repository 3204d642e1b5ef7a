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
// all_options() does not compile unless every field is listed. The defaults are the safe choices: ranks that train
// together must agree on the field, and it is a hyperparameter, which is logged, stored in checkpoints, and reported
// when a run is resumed with another value.
#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "composer/core/by_name.h"
#include "composer/core/enumerators.h"
#include "composer/core/error.h"
#include "composer/core/export.h"
#include "composer/core/interval.h"
#include "composer/core/registry.h"
#include "composer/core/state_dict.h"
#include "composer/core/time.h"

namespace composer {

// When ranks that train together compare a field.
enum class Compared : std::uint8_t {
  AT_FIT,    // when a fit begins
  AT_INIT,   // before INIT
  AT_BOTH,   // before INIT, and when a fit begins
  IF_SPLIT,  // when a fit begins, if ranks take slices of the same batches
  BY_FIT,    // indirectly, by comparing what a fit or a call computes from it
  NEVER,     // OptionRules::free says why
};

struct OptionRules {
  std::string unit = {};  // such as "samples", or "ep or tok" for a time
  Compared compared = Compared::AT_FIT;
  bool left_to_first = false;  // a rank that leaves it empty takes the value of rank 0
  std::string free = {};       // the reason why ranks may differ
  std::string unlogged = {};   // the reason why it is not a hyperparameter; empty: it is one
};

// The values of a run that some options are reported with, because the run replaces their values.
template <class Options>
struct RunOf {
  struct Type {};
};

// A rule that a value must obey. Without one, every value of the type is allowed.
template <class Options>
struct Limit {
  std::string must;  // as in an error message: "be > 0 seconds"
  std::function<bool(const Options&)> holds;
};

// The value as messages show it.
COMPOSER_EXPORT std::string text_of(const StateValue& value);

namespace detail {

// Convert text to a value. They throw ConfigError, which says what was expected. An empty text unsets an optional
// value.
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
COMPOSER_EXPORT void read_text(const std::string& text, std::map<std::string, std::string>& value);  // a=b,c=d

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
COMPOSER_EXPORT std::string to_text(const std::map<std::string, std::string>& value);

// bound_text: the bound of a range with all its digits. units_text: units of time, as in "ep, ba or sp".
COMPOSER_EXPORT std::string bound_text(double bound);
COMPOSER_EXPORT std::string units_text(const std::vector<TimeUnit>& units);

// Numbers and booleans are not converted; everything else becomes a text, which is "" for an unset value.
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

// For an interval, -1 (which means "all" elsewhere) would silently never be due, so it is rejected.
inline constexpr const char* kIntervalRule = "be >= 0, where 0 is never";
inline bool is_an_interval(const Interval& interval) { return interval.function() || interval.time().as_double() >= 0; }

// The value of an option; null if it is unset.
template <class T>
const T* held(const T& value) {
  return &value;
}
template <class T>
const T* held(const std::optional<T>& value) {
  return value ? &*value : nullptr;
}
inline const Time* held(const OptionalTime& value) { return value ? &*value : nullptr; }
inline const Interval* held(const OptionalInterval& value) { return value ? &*value : nullptr; }

template <class T>
using Held = std::remove_cvref_t<decltype(*held(std::declval<const T&>()))>;

template <class T>
double number_of(const T& value) {
  if constexpr (std::same_as<T, Seconds>)
    return value.count();
  else if constexpr (std::same_as<T, Time>)
    return value.as_double();
  else if constexpr (std::same_as<T, Interval>)
    return value.time().as_double();
  else
    return static_cast<double>(value);
}

// The text of the default value; empty if some field has no default.
template <class Options, class T>
std::string default_text(T Options::*member) {
  if constexpr (requires { Options{}; })
    return to_text(Options{}.*member);
  else
    return {};
}

// Whether the aggregate has fields of exactly these types, in this order.
template <class Options, class... T>
concept Takes = requires {
  Options{std::declval<T>()...};
};
struct Anything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};
// A field without a default accepts anything; a field that could be made from anything in several ways has a default.
template <class Options, class... T>
concept TakesMore = requires {
  Options{std::declval<T>()..., {}};
}
|| Takes<Options, T..., Anything> || Takes<Options, T..., Interval>;
template <class Options, class... T>
concept HasFields = (Takes<Options, T...> && !TakesMore<Options, T...>) ||
                    (Takes<Options, ByName, T...> && !TakesMore<Options, ByName, T...>);

}  // namespace detail

template <class Options>
struct Option : OptionInfo {
  using Tell = std::function<void(StateDict& into, const Options& options, const typename RunOf<Options>::Type& run)>;

  std::function<void(Options&, const std::string&)> read;  // null: it has no text form; `type` says what it is
  std::function<StateValue(const Options&)> value;         // null: it has no text form
  OptionRules rules = {};
  std::vector<Limit<Options>> limits = {};
  Tell tell = {};  // adds its hyperparameters; null: adds `value` under its name

  bool is_logged() const { return rules.unlogged.empty(); }
  void tell_to(StateDict& into, const Options& options, const typename RunOf<Options>::Type& run) const {
    if (tell)
      tell(into, options, run);
    else if (value)
      into[name] = value(options);
  }
};

// An option with this type. Its functions state how it differs from the defaults.
template <class Options, class T>
struct Field : Option<Options> {
  T Options::*member = nullptr;

  // For plug-ins that are made from text: example() makes an option required, and refuses() adds texts that must be
  // rejected, besides those that its type and its range reject.
  Field example(std::string text) && {
    OptionInfo::example = std::move(text);
    return std::move(*this);
  }
  Field refuses(const std::vector<std::string>& texts) && {
    this->refused.insert(this->refused.end(), texts.begin(), texts.end());
    return std::move(*this);
  }

  Field unit(std::string unit) && {
    this->rules.unit = std::move(unit);
    return std::move(*this);
  }
  // The range of a number. An unset value is always allowed.
  Field at_least(double low, std::string unit = {}) && {
    return std::move(*this).bounded(
        join(">= ", detail::bound_text(low)), {low - 1}, [low](double number) { return number >= low; },
        std::move(unit));
  }
  Field above(double low, std::string unit = {}) && {
    return std::move(*this).bounded(
        join("> ", detail::bound_text(low)), {low}, [low](double number) { return number > low; }, std::move(unit));
  }
  Field from_to(double low, double high, std::string unit = {}) && {
    return std::move(*this).bounded(
        join("from ", detail::bound_text(low), " to ", detail::bound_text(high)), {low - 1, high + 1},
        [low, high](double number) { return number >= low && number <= high; }, std::move(unit));
  }
  Field from_0_below_1() && {
    return std::move(*this).bounded("in [0, 1)", {-1, 1}, [](double number) { return number >= 0 && number < 1; });
  }
  Field not_empty() && {
    return std::move(*this).must("not be empty", [](const auto& value) { return !value.empty(); }).refuses({""});
  }
  Field in(const std::vector<TimeUnit>& units) && {
    return std::move(*this).must("be in " + detail::units_text(units),
                                 [units](Time time) { return std::ranges::find(units, time.unit()) != units.end(); });
  }
  // Used after a range: allows another value, and states its meaning.
  Field or_else(double other, const std::string& meaning) && {
    Limit<Options>& limit = this->limits.back();
    limit.must += join(", or ", other, " for ", meaning);
    limit.holds = [member = member, in_range = std::move(limit.holds), other](const Options& options) {
      const auto* value = detail::held(options.*member);
      return !value || detail::number_of(*value) == other || in_range(options);
    };
    std::erase(this->refused, detail::bound_text(other));
    return std::move(*this);
  }
  // Used after a range: also requires a finite value. The message does not change.
  Field finite() && {
    Limit<Options>& limit = this->limits.back();
    limit.holds = [member = member, in_range = std::move(limit.holds)](const Options& options) {
      const auto* value = detail::held(options.*member);
      return in_range(options) && (!value || std::isfinite(detail::number_of(*value)));
    };
    return std::move(*this).refuses({"inf"});
  }
  // Used after a range: replaces its message.
  Field worded(std::string must) && {
    this->limits.back().must = std::move(must);
    return std::move(*this);
  }
  // Adds any other rule: must("be 1 or 2", [](std::int64_t value) { ... }).
  template <class Rule>
  Field must(std::string rule, Rule holds) && {
    this->limits.push_back({std::move(rule), [member = member, holds = std::move(holds)](const Options& options) {
                              const auto* value = detail::held(options.*member);
                              return !value || holds(*value);
                            }});
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

  // Replaces the reported text or number.
  template <class Show>
  Field shown(Show show) && {
    this->value = [member = member, show = std::move(show)](const Options& options) -> StateValue {
      return show(options.*member);
    };
    return std::move(*this);
  }
  // Converts text to a value, for a type that option() does not support.
  template <class Read>
  Field read_by(Read read) && {
    this->read = [member = member, read = std::move(read)](Options& options, const std::string& text) {
      options.*member = read(text);
    };
    return std::move(*this);
  }
  // Replaces the reported hyperparameters, for options with several names or with a value that the run replaces.
  Field told(typename Option<Options>::Tell tell) && {
    this->tell = std::move(tell);
    return std::move(*this);
  }

 private:
  template <class InRange>
  Field bounded(const std::string& range, const std::vector<double>& outside, InRange in_range,
                std::string unit = {}) && {
    const std::string rule = join("be ", range, unit.empty() ? "" : " ", unit);
    this->rules.unit = std::move(unit);
    for (const double number : outside)
      this->refused.push_back(detail::bound_text(number) + (detail::type_name<T>() == "time" ? "ep" : ""));
    return std::move(*this).must(rule, [in_range](const auto& value) { return in_range(detail::number_of(value)); });
  }
};

// Describes a member of an options struct: a text, path, double, bool, Seconds, Interval, list of texts, map of texts,
// or an integer, bool or Time that may be optional.
template <class Options, class T>
Field<Options, T> option(std::string name, T Options::*member) {
  static_assert(
      detail::HasText<T>,
      "an option is a std::string, std::filesystem::path, double, bool, std::int64_t, Seconds, Time, Interval, "
      "std::vector<std::string>, std::map<std::string, std::string>, OptionalTime, or std::optional of a "
      "std::int64_t, std::uint64_t, bool or Time; an enum needs its values with their names as a third argument");
  if constexpr (detail::HasText<T>) {
    Field<Options, T> field{
        {{std::move(name), detail::type_name<T>(), detail::default_text(member)},
         [member](Options& options, const std::string& text) { detail::read_text(text, options.*member); },
         [member](const Options& options) { return detail::to_value(options.*member); }},
        member};
    if constexpr (std::same_as<T, Interval>)
      return std::move(field).must(detail::kIntervalRule, detail::is_an_interval);
    return field;
  } else {
    return {{}, member};
  }
}

// Describes an enum, or an optional one, with a name for each of its values.
template <class Options, class T, std::convertible_to<T> Value, std::size_t N>
Field<Options, T> option(std::string name, T Options::*member,
                         const std::array<std::pair<const char*, Value>, N>& values) {
  static_assert(detail::names_all<T>(N), "name every value of the enum here");
  OptionInfo info{std::move(name), {}, {}};
  for (const auto& [text, value] : values) {
    info.type += join(info.type.empty() ? "" : " or ", text);
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
               if (value == options.*member) return std::string(text);
             return std::string("?");
           }},
          member};
}

template <class Options, class T, std::size_t N>
Field<Options, T> option(std::string name, T Options::*member,
                         const std::pair<const char*, std::type_identity_t<T>> (&values)[N]) {
  return option(std::move(name), member, std::to_array(values));
}

// Describes a field without a text form. `what` is its type for messages, such as "a module".
template <class Options, class T>
Field<Options, T> part(std::string name, T Options::*member, std::string what) {
  return {{{std::move(name), std::move(what)}, nullptr, nullptr}, member};
}

namespace detail {

// Throws Error for a field that is described twice, or out of the order of declaration.
template <class Options, class... T>
void check_order(const Options& options, const Field<Options, T>&... fields) {
  const void* last = nullptr;
  const auto check_next = [&last](const auto& field, const void* here) {
    if (!std::less<>()(last, here)) throw Error("option ", field.name, ": its line describes another field");
    last = here;
  };
  (check_next(fields, std::addressof(options.*fields.member)), ...);
}

}  // namespace detail

template <class Options, class... T>
std::vector<Option<Options>> all_options(Field<Options, T>... fields) {
  static_assert(detail::HasFields<Options, T...>,
                "describe every field of the struct here, in the order of their declarations");
  if constexpr (requires { Options{}; }) detail::check_order(Options{}, fields...);
  std::vector<Option<Options>> all;
  all.reserve(sizeof...(T));
  (all.push_back(std::move(fields)), ...);
  return all;
}

// Throws ConfigError for the first value that violates its rule: "`who`size: must be > 0 seconds, got -1".
template <class Options>
void check(const Options& options, const std::vector<Option<Options>>& list, const std::string& who = {},
           const char* after_name = ":") {
  for (const Option<Options>& option : list)
    for (const Limit<Options>& limit : option.limits)
      if (!limit.holds(options)) {
        const std::string got = option.value ? text_of(option.value(options)) : "";
        throw ConfigError(who, option.name, after_name, " must ", limit.must, got.empty() ? "" : ", got ", got);
      }
}

// Returns the options if all obey their rules. Otherwise throws "Sampler: size must be > 0, got -1". For constructors.
template <class Options>
Options checked(const char* who, Options options, const std::vector<Option<Options>>& list) {
  check(options, list, join(who, ": "), "");
  return options;
}

// The options that are hyperparameters, as in "rate=0.5, steps=3".
template <class Options>
std::string text_of(const Options& options, const std::vector<Option<Options>>& list) {
  std::string text;
  for (const auto& option : list)
    if (option.is_logged() && option.value)
      text += join(text.empty() ? "" : ", ", option.name, '=', text_of(option.value(options)));
  return text;
}

// The options by name: for local_hparams() of a plug-in.
template <class Options>
StateDict describe(const Options& options, const std::vector<Option<Options>>& list) {
  detail::check_names("describe", list);
  StateDict described;
  for (const auto& option : list)
    if (option.is_logged() && option.value) described[option.name] = option.value(options);
  return described;
}

}  // namespace composer
