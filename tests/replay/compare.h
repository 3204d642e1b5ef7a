// What is equal, what is different on purpose, and what is wrong.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace composer::replay {

using Json = nlohmann::json;

enum class Verdict : std::uint8_t { EQUAL, DIFFERENT, UNSUPPORTED, WRONG };

struct Outcome {
  Verdict verdict = Verdict::EQUAL;
  std::string text;                // why not supported, or what is wrong
  std::vector<std::string> rules;  // names of the differences that explain the case
};

// Thrown for what the library does not have: the case is not supported.
struct Unsupported {
  std::string why;
};

Outcome unsupported(std::string why);
Outcome wrong(std::string what);

// A deliberate difference from Composer: a row of docs/internals/differences.md.
struct Rule {
  std::string name;        // in snake_case, unique within a file
  std::string applies_to;  // these four are prose, Markdown
  std::string composer_does;
  std::string we_do;
  std::string why;
  std::function<bool(const Json& c)> matches;
  std::function<void(Json& expected, const Json& c)> ours;  // turns the recorded result into ours
};
using Rules = std::vector<Rule>;

struct Tolerance {
  double relative = 1e-12, absolute = 0;
};

// Where `got` first differs from `want`: "states[3].batch: 4 was recorded, got 5". Integers, texts and orders are
// exact; if either number is a floating-point number the tolerance holds. Keys of objects have no order.
std::optional<std::string> first_difference(const Json& want, const Json& got, Tolerance tolerance = {});

// Equal to the recording, or else to what the rules that match the case make of it (one after another), or wrong.
Outcome judge(const Json& c, const Json& recorded, const Json& got, const Rules& rules, Tolerance tolerance = {});

// What was recorded for a row of a case, and what came out.
using RecordedAndGot = std::pair<Json, Json>;
template <class Replay>
Outcome judge_rows(const Json& c, const Rules& rules, Replay&& replay) {
  Json recorded = Json::array(), got = Json::array();
  for (const Json& row : c.at("rows")) {
    RecordedAndGot both = replay(row);
    recorded.push_back(std::move(both.first));
    got.push_back(std::move(both.second));
  }
  return judge(c, recorded, got, rules);
}

// A double as recordings write it: a number, or "nan", "inf", "-inf".
Json number(double value);
double as_double(const Json& number);

}  // namespace composer::replay
