#pragma once
#include <exception>
#include <utility>

#include "tests/replay/compare.h"

namespace composer::replay {

// {"error": {"type": ...}} with the type that Composer raises where we throw this. Where several of Composer's types
// are one of ours, the recorded one is taken if it is among them. Texts are our own and not compared.
Json error_result(const std::exception& error, const Json& recorded);

// The same for what is nested innermost in the error: the cause that a RunError places.
Json cause_result(const std::exception& error, const Json& recorded);

// A recorded result with the message of its error left out, as error_result gives it.
Json without_message(Json result);

// Recorded of what the compiler refuses here.
inline const Json kDoesNotCompile = {{"error", {{"type", "does not compile"}}}};

// What `make` returns, or its error. `recorded` is {"error": {...}} or any other result.
template <class Make>
Json result_of(const Json& recorded, Make&& make) {
  try {
    return std::forward<Make>(make)();
  } catch (const std::exception& error) {
    return error_result(error, recorded);
  }
}

}  // namespace composer::replay
