#pragma once
#include <functional>

#include "tests/property/program.h"

namespace composer::property {

// The program with all that can be left out left out: `fails` says whether one still does, by the same rule.
Program shrink(Program program, const std::function<bool(const Program&)>& fails);

}  // namespace composer::property
