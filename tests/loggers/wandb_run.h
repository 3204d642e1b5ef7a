// A WandBLogger in a run without a trainer, which fires events and logs by hand.
#pragma once
#include <filesystem>
#include <utility>

#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/loggers/wandb_logger.h"
#include "tests/loggers/wandb_reader.h"
#include "tests/support/doctest.h"

namespace composer::loggers {

struct ScriptedWandBRun {
  explicit ScriptedWandBRun(WandBLoggerOptions options) : wandb(std::move(options)) { state.run_name = "r"; }
  explicit ScriptedWandBRun(const std::filesystem::path& folder)
      : ScriptedWandBRun(WandBLoggerOptions{.folder = folder.string()}) {}
  void init() { wandb.init(state, logger); }
  void close() { wandb.close(state, logger); }
  void fire(Event event) { wandb.run_event(event, state, logger); }
  State state;
  WandBLogger wandb;
  Logger logger{state, {&wandb}};
};

// Reads the only offline run below `folder`; fails the test if there is not exactly one.
inline test::WandBFile only_run(const std::filesystem::path& folder) {
  const auto runs = test::wandb_runs(folder);
  REQUIRE(runs.size() == 1);
  return test::read_wandb_file(test::wandb_file_in(runs[0]));
}

}  // namespace composer::loggers
