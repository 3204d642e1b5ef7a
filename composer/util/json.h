#pragma once
// JSON from outside: files that may be damaged or forged, and what servers answer. Copying, writing and comparing a
// document of nlohmann's calls itself for each level, so one that is nested 50,000 deep would exhaust the stack, and a
// document needs up to 25 times the memory of its text. scripts/layers.py lets nobody else parse.
#include <cstddef>
#include <string_view>

#include "composer/core/error.h"
#include "composer/core/export.h"

namespace composer::util {

constexpr std::size_t kDeepestJson = 100;
constexpr std::size_t kLongestJson = 8 << 20;  // bytes; a manifest of 1,000 parts has 150,000

// How deep its arrays and objects are nested, be it valid or not.
COMPOSER_EXPORT std::size_t json_depth(std::string_view text);

// Throws an Error or one of nlohmann's exceptions.
template <class Json>
Json parse_json(std::string_view text) {
  if (text.size() > kLongestJson) throw Error("is JSON of ", text.size(), " bytes, and ", kLongestJson, " are allowed");
  if (const std::size_t depth = json_depth(text); depth > kDeepestJson)
    throw Error("is JSON that is nested ", depth, " deep, and ", kDeepestJson, " are allowed");
  return Json::parse(text);
}

// A discarded document for what is no JSON, too long, or nested too deep.
template <class Json>
Json parse_json_or_discard(std::string_view text) {
  if (text.size() > kLongestJson || json_depth(text) > kDeepestJson) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace composer::util
