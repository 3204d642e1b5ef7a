#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/export.h"
#include "composer/core/time.h"
#include "composer/formats/unsupported.h"

namespace composer::saving {

// Thrown for a checkpoint that a newer libcomposer has written.
struct COMPOSER_EXPORT NewerVersionError : formats::UnsupportedError {
  using UnsupportedError::UnsupportedError;
  NewerVersionError(const NewerVersionError&) = default;
  NewerVersionError& operator=(const NewerVersionError&) = default;
  ~NewerVersionError() override;
};

// Commits a checkpoint: a folder without a complete manifest.json is not a checkpoint
// (docs/internals/checkpoint-format.md).
struct Manifest {
  struct File {
    std::string name;
    std::uint64_t size = 0;
    std::string checksum;  // of its header, which covers all its bytes; in version 1, of all its bytes
  };
  static constexpr int kVersion = 4;  // the version written; versions 1 to 3, without number and fit, can also be read
  static constexpr int kFirstWithNumber = 4;
  static constexpr const char* kFileName = "manifest.json";

  std::string id;    // of this checkpoint; repeated in its files
  std::string name;  // the folder's name when it was written
  std::string run_name;
  std::string run_id;               // of the run and of runs resumed from its checkpoints
  std::string parent;               // the previous checkpoint that this run wrote or was resumed from; "": none
  std::int64_t number = 0;          // the n-th checkpoint of the run; 0: written by an earlier version
  std::optional<std::int64_t> fit;  // number of the program's fit that began last; unset: weights alone
  std::string program;              // equal for trainers that resume together; "": the trainer resumes alone
  Timestamp time;
  std::map<std::string, double> metrics;  // by label/name
  bool weights_only = false;
  bool by_hand = false;  // by save_checkpoint(); always false in earlier versions
  std::string composer_version, libtorch_version;
  std::vector<File> files;
  int version = kVersion;

  COMPOSER_EXPORT const File* find(std::string_view file) const;
  // Returns the text of the file, which ends in a checksum of the rest. A text of more than util::kLongestJson bytes
  // could not be read, so metrics are left out of it, with a warning. Throws ConfigError if that is not enough, and for
  // text that is not UTF-8.
  COMPOSER_EXPORT std::string to_json() const;
  // Throws CheckpointError, beginning with `path`, for a text that differs from that of to_json() in any byte, and
  // NewerVersionError for a version above kVersion.
  COMPOSER_EXPORT static Manifest parse(std::string_view text, const std::string& path);
};

// Whether `a` was written before `b`, both of one run. Compares their times only if they have no numbers, because time
// may have been reset between them.
COMPOSER_EXPORT bool is_older(const Manifest& a, const Manifest& b);

}  // namespace composer::saving
