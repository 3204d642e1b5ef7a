#pragma once
#include <exception>
#include <string>

#include "composer/core/error.h"

namespace composer::test {

// The text of the error that `run` ends with.
template <class F>
std::string error_of(F&& run) {
  try {
    run();
  } catch (const std::exception& error) {
    return describe(error);
  }
  return "no error";
}

}  // namespace composer::test
