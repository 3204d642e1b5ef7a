// time.json: Time, TimeUnit and Timestamp.
#include "composer/core/time.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <type_traits>
#include <utility>
#include <variant>

#include "composer/core/state_dict.h"
#include "tests/replay/errors.h"
#include "tests/replay/replay.h"

namespace composer::replay {
namespace {

// ---- reading and writing

Json time_result(Time time) {
  const bool share = time.unit() == TimeUnit::DURATION;
  const std::string text = to_string(time);
  return {{"time",
           {{"value", share ? number(time.as_double()) : Json(time.count())},
            {"unit", to_string(time.unit())},
            {"str", text},
            {"timestring", text}}}};
}
Json time_result(bool value) { return {{"bool", value}}; }

// A result without what only Python has: the text that evaluates to the same object.
Json comparable(Json result) {
  if (result.contains("time")) result["time"].erase("repr");
  return without_message(std::move(result));
}

using Operand = std::variant<Time, std::int64_t, double>;

Time time_from(const Json& value, const Json& unit, bool is_float) {
  const TimeUnit parsed = parse_time_unit(unit.get<std::string>());
  if (is_float || !value.is_number_integer()) return Time::from(as_double(value), parsed);
  return Time(value.get<std::int64_t>(), parsed);
}

Operand operand(const Json& json, bool is_float) {
  if (json.is_string()) return Time::parse(json.get<std::string>());
  if (json.is_object()) return time_from(json.at("time").at(0), json.at("time").at(1), false);
  if (is_float) return json.get<double>();
  return json.get<std::int64_t>();
}

struct Field {
  const char* name;
  std::int64_t Timestamp::*count;
  TimeUnit unit;
};
constexpr Field kFields[] = {
    {"iteration", &Timestamp::iteration, TimeUnit::ITERATION},
    {"epoch", &Timestamp::epoch, TimeUnit::EPOCH},
    {"batch", &Timestamp::batch, TimeUnit::BATCH},
    {"sample", &Timestamp::sample, TimeUnit::SAMPLE},
    {"token", &Timestamp::token, TimeUnit::TOKEN},
    {"epoch_in_iteration", &Timestamp::epoch_in_iteration, TimeUnit::EPOCH},
    {"token_in_iteration", &Timestamp::token_in_iteration, TimeUnit::TOKEN},
    {"batch_in_epoch", &Timestamp::batch_in_epoch, TimeUnit::BATCH},
    {"sample_in_epoch", &Timestamp::sample_in_epoch, TimeUnit::SAMPLE},
    {"token_in_epoch", &Timestamp::token_in_epoch, TimeUnit::TOKEN},
};
struct Clock {
  const char* name;
  Seconds Timestamp::*seconds;
};
constexpr Clock kClocks[] = {
    {"total_wct", &Timestamp::total_wct},
    {"iteration_wct", &Timestamp::iteration_wct},
    {"epoch_wct", &Timestamp::epoch_wct},
    {"batch_wct", &Timestamp::batch_wct},
};

Json time_result(const Timestamp& timestamp) {
  Json json;
  for (const auto& [name, count, unit] : kFields) json[name] = timestamp.*count;
  for (const auto& [name, seconds] : kClocks) json[name] = (timestamp.*seconds).count();
  return json;
}

// Whether a field of a timestamp could be given so in C++: as a number. A time of the right unit stands for its count.
bool fits(const Json& value, TimeUnit unit) {
  if (value.is_number()) return value.is_number_integer();
  const Operand time = operand(value, false);
  return std::get<Time>(time).unit() == unit;
}

std::int64_t count_of(const Json& value) {
  if (value.is_number()) return value.get<std::int64_t>();
  return std::get<Time>(operand(value, false)).count();
}

bool fields_fit(const Json& fields) {
  static_assert(!std::is_assignable_v<std::int64_t&, Time>);
  for (const auto& field : kFields) {
    if (fields.contains(field.name) && !fits(fields[field.name], field.unit)) return false;
  }
  return true;
}

Timestamp with_fields(Timestamp timestamp, const Json& fields) {
  for (const auto& [name, count, unit] : kFields) {
    if (fields.contains(name)) timestamp.*count = count_of(fields[name]);
  }
  for (const auto& [name, seconds] : kClocks) {
    if (fields.contains(name)) timestamp.*seconds = Seconds(fields[name].get<double>());
  }
  return timestamp;
}

// ---- what the kinds of cases do

template <class A, class B>
Json apply(const std::string& op, const A& a, const B& b) {
  if constexpr (requires { a < b; }) {
    if (op == "<") return time_result(a < b);
    if (op == "<=") return time_result(a <= b);
    if (op == ">") return time_result(a > b);
    if (op == ">=") return time_result(a >= b);
  }
  if constexpr (requires { a == b; }) {
    if (op == "==") return time_result(a == b);
    if (op == "!=") return time_result(a != b);
  }
  if constexpr (std::is_same_v<A, Time> || std::is_same_v<B, Time>) {
    if constexpr (requires { a + b; }) {
      if (op == "+") return time_result(a + b);
      if (op == "-") return time_result(a - b);
    }
    if constexpr (requires { a* b; }) {
      if (op == "*") return time_result(a * b);
    }
    if constexpr (requires { a / b; }) {
      if (op == "/") return time_result(a / b);
    }
    if constexpr (requires { a % b; }) {
      if (op == "%") return time_result(a % b);
    }
  }
  return kDoesNotCompile;
}

Json binary(const Json& c) {
  if (c["left"].is_null() || c["right"].is_null()) return kDoesNotCompile;
  const Operand left = operand(c["left"], c["left_is_float"]), right = operand(c["right"], c["right_is_float"]);
  return std::visit([&](auto a, auto b) { return apply(c["op"], a, b); }, left, right);
}

Json unary(const Json& c) {
  const Time time = std::get<Time>(operand(c["operand"], false));
  const std::string op = c["op"];
  if (op == "neg") return time_result(-time);
  if (op == "pos") return time_result(+time);
  if (op == "int") return {{"int", static_cast<std::int64_t>(time.as_double())}};
  return {{"float", time.as_double()}};
}

Json from_input(const Json& c) {
  const Json& input = c["input"];
  if (!input.is_number()) return time_result(std::get<Time>(operand(input, false)));
  if (c["default_unit"].is_null()) return kDoesNotCompile;
  return time_result(time_from(input, c["default_unit"], c["input_is_float"]));
}

Json compare_timestamp(const Json& c) {
  const Timestamp timestamp = with_fields({}, c["timestamp"]);
  const Json& right = c["right"];
  if (right.is_number()) return apply(c["op"], timestamp, right.get<std::int64_t>());
  if (right.is_object() && right.contains("timestamp")) {
    return apply(c["op"], timestamp, with_fields({}, right["timestamp"]));
  }
  const Time time = std::get<Time>(operand(right, false));
  return apply(c["op"], timestamp.get(time.unit()), time);
}

Timestamp step(const Timestamp& now, const Json& s) {
  const std::string op = s["op"];
  const Seconds duration(s.value("duration", 0.0));
  if (op == "to_next_epoch") return now.to_next_epoch(duration);
  if (op == "to_next_iteration") return now.to_next_iteration(duration);
  if (op == "copy") return with_fields(now, s);
  return now.to_next_batch(count_of(s.value("samples", Json(0))), count_of(s.value("tokens", Json(0))), duration);
}

Json timestamp_states(const Json& c) {
  Timestamp now = with_fields({}, c["start"]);
  Json states = Json::array({time_result(now)});
  for (const Json& s : c["steps"]) {
    now = step(now, s);
    states.push_back(time_result(now));
  }
  return states;
}

constexpr const char* kInEpoch[] = {"batch_in_epoch", "sample_in_epoch", "token_in_epoch", "epoch_wct", "batch_wct"};

// Into a timestamp whose counters are 9, those of the epoch 0.
Json load_timestamp(const Json& recorded) {
  Json nines;
  for (const auto& [name, count, unit] : kFields) nines[name] = 9;
  for (const auto& [name, seconds] : kClocks) nines[name] = 9.0;
  for (const char* name : kInEpoch) nines.erase(name);
  Timestamp now = with_fields({}, nines);
  StateDict saved, fields;
  for (const auto& [name, value] : recorded.items())
    fields[name] = name.ends_with("_wct") ? StateValue(value.get<double>()) : StateValue(value.get<std::int64_t>());
  saved["timestamp"] = fields;
  StateVisitor::loading(saved, "")("timestamp", now);
  return {{"timestamp", time_result(now)}};
}

Json run_kind(const std::string& kind, const Json& c) {
  if (kind == "from_timestring" || kind == "from_timedelta")
    return time_result(Time::parse(c["input"].get<std::string>()));
  if (kind == "unit") return {{"unit", to_string(parse_time_unit(c["input"].get<std::string>()))}};
  if (kind == "construct") return time_result(time_from(c["value"], c["unit"], c["value_is_float"]));
  if (kind == "from_input") return from_input(c);
  if (kind == "binary") return binary(c);
  if (kind == "unary") return unary(c);
  if (kind == "timestamp_get") {
    return time_result(with_fields({}, c["timestamp"]).get(parse_time_unit(c["unit"].get<std::string>())));
  }
  if (kind == "timestamp_compare") return compare_timestamp(c);
  if (kind == "timestamp_load_state_dict") return load_timestamp(c["state_dict"]);
  if (!fields_fit(c["kwargs"])) return kDoesNotCompile;  // timestamp_construct
  return {{"timestamp", time_result(with_fields({}, c["kwargs"]))}};
}

// ---- deliberate differences

std::string text_input(const Json& c) { return c.contains("input") && c["input"].is_string() ? c["input"] : ""; }

bool is_text_input(const Json& c) { return c.contains("input") && c["input"].is_string() && c["kind"] != "unit"; }

Json error(const char* type) { return {{"error", {{"type", type}}}}; }

Json counted(std::int64_t count, const std::string& unit) {
  const std::string text = std::to_string(count) + unit;
  return {{"time", {{"value", count}, {"unit", unit}, {"str", text}, {"timestring", text}}}};
}

// A clock that ends in a number without a letter.
bool is_bare_number(const Json& c) {
  static const std::regex form("(\\d+h)?(\\d+m)?\\d*");
  const std::string text = text_input(c);
  return is_text_input(c) && std::regex_match(text, form) && (text.empty() || std::isdigit(text.back()));
}

std::smatch clock_of(const std::string& text) {
  static const std::regex form("(?:(\\d{1,9})h)?(?:(\\d{1,9})m)?(?:(\\d{1,9})s)?");
  std::smatch match;
  std::regex_match(text, match, form);
  return match;
}

std::int64_t field(const std::smatch& clock, int i) { return clock[i].matched ? std::stoll(clock[i]) : 0; }

bool is_long_clock(const Json& c) {
  const std::string text = text_input(c);
  const std::smatch clock = clock_of(text);
  return !text.empty() && !clock.empty() && (field(clock, 1) > 23 || field(clock, 2) > 59 || field(clock, 3) > 59);
}

void count_long_clock(Json& expected, const Json& c) {
  const std::string text = text_input(c);
  const std::smatch clock = clock_of(text);
  expected = counted(field(clock, 1) * 3600 + field(clock, 2) * 60 + field(clock, 3), "sec");
}

std::smatch long_count_of(const std::string& text) {
  static const std::regex form("([+-]?\\d{16,})(iter|ep|ba|sp|tok|sec)");
  std::smatch match;
  std::regex_match(text, match, form);
  return match;
}

bool is_long_count(const Json& c) {
  const std::string text = text_input(c);
  return !long_count_of(text).empty();
}

void count_exactly(Json& expected, const Json& c) {
  const std::string text = text_input(c);
  const std::smatch match = long_count_of(text);
  errno = 0;
  const std::int64_t count = std::strtoll(match[1].str().c_str(), nullptr, 10);
  expected = errno == ERANGE ? error("OverflowError") : counted(count, match[2]);
}

bool has_foreign_digits(const Json& c) {
  const std::string text = text_input(c);
  return c.value("python_specific", false) && std::ranges::any_of(text, [](char byte) { return (byte & 0x80) != 0; });
}

bool is_mistake_of_types(const Json& c) {
  const std::string kind = c["kind"];
  if (kind == "from_input") return c["input"].is_number() && c["default_unit"].is_null();
  if (kind == "timestamp_construct") return !fields_fit(c["kwargs"]);
  if (kind == "timestamp_compare") return c["right"].is_number();
  if (kind != "binary") return false;
  if (c["left"].is_null() || c["right"].is_null()) return true;
  return c["left"].is_number() && (c["op"] == "/" || c["op"] == "%" || c["op"] == "//");
}

bool is_part_of_timestamp(const Json& c) {
  if (c["kind"] != "timestamp_load_state_dict") return false;
  for (const auto& [name, count, unit] : kFields)
    if (!c["state_dict"].contains(name)) return true;
  return std::ranges::any_of(kClocks, [&](const Clock& clock) { return !c["state_dict"].contains(clock.name); });
}

Rules time_rules() {
  return {
      {.name = "bare_number",
       .applies_to = "A time without a unit: `\"5\"`, `\"\"`, `\"1h5\"`",
       .composer_does = "glues `0s` to it: 50 seconds, 0 seconds, 1 hour and 50 seconds",
       .we_do = "refuses it: `TimeSyntaxError`",
       .why = "nobody means that",
       .matches = is_bare_number,
       .ours = [](Json& expected, const Json&) { expected = error("ValueError"); }},
      {.name = "long_clock",
       .applies_to = "24 hours and more, 60 minutes and more: `\"90m\"`, `\"24h\"`",
       .composer_does = "refuses them, as no time of day",
       .we_do = "counts them: 5400 and 86400 seconds",
       .why = "these are lengths, not times of day",
       .matches = is_long_clock,
       .ours = count_long_clock},
      {.name = "exact_counts",
       .applies_to = "Counts above 2^53",
       .composer_does = "rounds them to a double; has no upper limit",
       .we_do = "reads them exactly; refuses what does not fit into 64 bits: `TimeRangeError`",
       .why = "token counts are that large, and a count must not lose its one",
       .matches = is_long_count,
       .ours = count_exactly},
      {.name = "foreign_digits",
       .applies_to = "Digits that are not ASCII",
       .composer_does = "reads them, as Python does",
       .we_do = "refuses them: `TimeSyntaxError`",
       .why = "a property of Python's numbers",
       .matches = has_foreign_digits,
       .ours = [](Json& expected, const Json&) { expected = error("ValueError"); }},
      {.name = "mistake_of_types",
       .applies_to =
           "A `Time` from a number without a unit, a number divided by a `Time`, a `Timestamp` compared with a "
           "number, a field of a `Timestamp` given as a `Time` of another unit or as a fraction",
       .composer_does = "raises `RuntimeError`, `TypeError` or `ValueError`; `==` with something else is false",
       .we_do = "does not compile",
       .why = "the compiler knows the types",
       .matches = is_mistake_of_types,
       .ours = [](Json& expected, const Json&) { expected = kDoesNotCompile; }},
      {.name = "timestamps_are_whole",
       .applies_to = "Loading a timestamp that lacks counts, as old versions of Composer wrote it",
       .composer_does = "raises `KeyError` for some; others stay what they are",
       .we_do = "refuses it: `CheckpointError`",
       .why = "a count that stays is a wrong one",
       .matches = is_part_of_timestamp,
       .ours = [](Json& expected, const Json&) { expected = error("RuntimeError"); }},
  };
}

Outcome run_time(const Json& c, const Context&) {
  static const Rules all = time_rules();
  const std::string kind = c["kind"];
  if (kind == "timestamp_program") return judge(c, c["states"], timestamp_states(c), all);
  const Json& recorded = c["result"];
  return judge(c, comparable(recorded), result_of(recorded, [&] { return run_kind(kind, c); }), all);
}

}  // namespace

Suite time_suite() { return {"time.json", "Time", run_time, time_rules()}; }

}  // namespace composer::replay
