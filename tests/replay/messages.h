#pragma once
#include <functional>
#include <map>
#include <string>

#include "tests/replay/compare.h"

namespace composer::replay {

// By the id of its case: commits the misuse. Gives the recorded result where nothing fails, null if there is none.
using Misuses = std::map<std::string, std::function<Json()>>;
const Misuses& trainer_misuses();
const Misuses& misuses_of_parts();

// Misuse that cannot be written down in C++, so there is nothing to run.
bool refused_by_compiler(const Json& c);

Rules messages_rules();

}  // namespace composer::replay
