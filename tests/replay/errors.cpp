#include "tests/replay/errors.h"

#include <algorithm>
#include <string>
#include <vector>

#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "composer/core/time_unit.h"

namespace composer::replay {
namespace {

// The first is the usual one.
std::vector<std::string> composer_types(const std::exception& error) {
  const auto is = [&](auto* type) { return dynamic_cast<decltype(type)>(&error) != nullptr; };
  if (is(static_cast<const TimeSyntaxError*>(nullptr))) return {"ValueError"};
  if (is(static_cast<const TimeTypeError*>(nullptr))) return {"TypeError"};
  if (is(static_cast<const TimeUnitError*>(nullptr))) return {"RuntimeError", "ValueError"};
  if (is(static_cast<const TimeRangeError*>(nullptr))) return {"OverflowError", "ZeroDivisionError"};
  if (is(static_cast<const ConfigError*>(nullptr))) {
    return {"ValueError",     "RuntimeError", "TypeError",         "NotImplementedError",
            "AssertionError", "KeyError",     "ZeroDivisionError", "FileExistsError"};
  }
  if (is(static_cast<const CheckpointError*>(nullptr)))
    return {"RuntimeError", "KeyError", "FileNotFoundError", "UnpicklingError"};
  if (is(static_cast<const DataError*>(nullptr)))
    return {"ValueError", "RuntimeError",   "TypeError",          "KeyError",
            "IndexError", "AttributeError", "NotImplementedError"};
  if (is(static_cast<const Error*>(nullptr))) return {"RuntimeError"};
  if (is(static_cast<const c10::Error*>(nullptr))) return {"RuntimeError"};  // what it is in Python
  return {std::string("no error of the library: ") + error.what()};
}

}  // namespace

Json error_result(const std::exception& error, const Json& recorded) {
  const std::vector<std::string> types = composer_types(error);
  std::string type = types.front();
  if (recorded.is_object() && recorded.contains("error") && recorded["error"].is_object()) {
    const std::string wanted = recorded["error"].value("type", "");
    if (std::ranges::find(types, wanted) != types.end()) type = wanted;
  }
  return {{"error", {{"type", type}}}};
}

Json cause_result(const std::exception& error, const Json& recorded) {
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& cause) {
    return cause_result(cause, recorded);
  }
  return error_result(error, recorded);
}

Json without_message(Json result) {
  if (result.is_object() && result.contains("error") && result["error"].is_object()) result["error"].erase("message");
  return result;
}

}  // namespace composer::replay
