#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "composer/checkpoint/option_names.h"
#include "composer/core/metric.h"

namespace composer::saving {

class Mirror;

// What to do when a checkpoint cannot be written. Earlier checkpoints are kept in any case.
enum class OnFailure : std::uint8_t {
  FAIL,      // the run ends with the error
  RETRY,     // up to three times more, after 1, 2 and 4 seconds; then as FAIL
  CONTINUE,  // warn, and train on without this checkpoint
};

// Of the checkpoints whose weights the metric was measured on.
struct Best {
  std::string metric;                 // as label/name: "eval/MulticlassAccuracy"
  std::optional<Better> better = {};  // unset: as the metric declares, else by its name

  static constexpr const char* kLink = "best";  // beside the link to the newest, where there is one
};

// Of a Saver.
struct SaverOptions {
  std::filesystem::path folder = {};
  std::string latest = "latest";  // the link to the newest; empty: none
  std::int64_t keep = -1;         // number of this run's checkpoints; -1: all, 0: none is written
  std::optional<Best> best = {};  // keep those with the best metric, and the newest in addition
  OnFailure on_failure = OnFailure::FAIL;
  bool asynchronous = true;  // false: save() returns when the checkpoint is on disk; deletions stay in the background
  bool overwrite = false;    // also replace checkpoints of other runs
  std::string run_id = {};   // empty: generated
  // Time until the process must have ended; nullopt: unknown. OnFailure::RETRY gives up when a write that takes as long
  // as the last one would end later. Called on the writing thread. Not set: no limit.
  std::function<std::optional<std::chrono::steady_clock::duration>()> time_left = {};
  std::shared_ptr<Mirror> mirror = {};  // gets what is written; null: none
  OptionNames names = {};
};

}  // namespace composer::saving
