// The files of FileLogger in console.json.
#pragma once
#include "tests/replay/replay.h"

namespace composer::replay {

Outcome run_file_logger(const Json& c, const Context& context);
Rules file_logger_rules();

}  // namespace composer::replay
