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
  RETRY,     // up to three more attempts, after 1, 2 and 4 seconds; then like FAIL
  CONTINUE,  // warns and trains on without this checkpoint
};

// Chooses the best of the checkpoints on whose weights the metric was measured.
struct Best {
  std::string metric;                 // as label/name: "eval/MulticlassAccuracy"
  std::optional<Better> better = {};  // unset: as the metric declares, otherwise by its name

  static constexpr const char* kLink = "best";  // name of a link, beside the link to the newest one
};

// The options of a Saver.
struct SaverOptions {
  std::filesystem::path folder = {};       // where checkpoints are written; required
  std::string latest = "latest";           // name of the link to the newest one; empty: none
  std::int64_t keep = -1;                  // number of this run's checkpoints; -1: all, 0: none is written
  std::optional<Best> best = {};           // keeps those with the best metric, and the newest in addition
  OnFailure on_failure = OnFailure::FAIL;  // what to do when a checkpoint cannot be written
  // False: save() returns when the checkpoint is on disk; deletions are still done in the background.
  bool asynchronous = true;
  bool overwrite = false;   // also replaces checkpoints of other runs
  std::string run_id = {};  // empty: generated
  // Time until the process must have ended; nullopt: unknown. OnFailure::RETRY gives up if a write of the duration of
  // the last one would not end in time. Called on the writing thread. Not set: no limit.
  std::function<std::optional<std::chrono::steady_clock::duration>()> time_left = {};
  std::shared_ptr<Mirror> mirror = {};  // gets copies of the checkpoints; null: none
  OptionNames names = {};               // names of options in errors and warnings
};

}  // namespace composer::saving
