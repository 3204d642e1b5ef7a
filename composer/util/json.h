#pragma once
// Parses JSON from files that may be damaged or forged, and from servers. nlohmann's functions that copy, write and
// compare a document recurse once for each level, so a document nested 50,000 deep would exhaust the stack; and a
// document needs up to 25 times the memory of its text. scripts/layers.py refuses any other parsing.
#include <cstddef>
#include <string_view>

#include "composer/core/error.h"
#include "composer/core/export.h"

namespace composer::util {

constexpr std::size_t kDeepestJson = 100;
constexpr std::size_t kLongestJson = 8 << 20;  // bytes; a manifest of 1,000 parts has 150,000

// The depth of nested arrays and objects. The text need not be valid JSON.
COMPOSER_EXPORT std::size_t json_depth(std::string_view text);

// Throws Error for a text that is too long or nested too deep, and nlohmann's exceptions for one that is not JSON.
template <class Json>
Json parse_json(std::string_view text) {
  if (text.size() > kLongestJson) throw Error("is JSON of ", text.size(), " bytes, and ", kLongestJson, " are allowed");
  if (const std::size_t depth = json_depth(text); depth > kDeepestJson)
    throw Error("is JSON that is nested ", depth, " deep, and ", kDeepestJson, " are allowed");
  return Json::parse(text);
}

// Returns a discarded document for a text that is not JSON, is too long, or is nested too deep.
template <class Json>
Json parse_json_or_discard(std::string_view text) {
  if (text.size() > kLongestJson || json_depth(text) > kDeepestJson) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace composer::util
