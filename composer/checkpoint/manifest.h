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

// The checkpoint was written by a newer libcomposer.
struct COMPOSER_EXPORT NewerVersionError : formats::UnsupportedError {
  using UnsupportedError::UnsupportedError;
  NewerVersionError(const NewerVersionError&) = default;
  NewerVersionError& operator=(const NewerVersionError&) = default;
  ~NewerVersionError() override;
};

// Commits a checkpoint: a folder without a complete manifest.json is not a checkpoint (docs/checkpoint-format.md).
struct Manifest {
  struct File {
    std::string name;
    std::uint64_t size = 0;
    std::string checksum;  // of its header, which covers all its bytes; in version 1 of all its bytes
  };
  static constexpr int kVersion = 4;  // written; versions 1 to 3, which have neither number nor fit, can also be read
  static constexpr int kFirstWithNumber = 4;
  static constexpr const char* kFileName = "manifest.json";

  std::string id;    // of this checkpoint; repeated in its files
  std::string name;  // the folder's name when it was written
  std::string run_name;
  std::string run_id;               // of the run and of runs resumed from its checkpoints
  std::string parent;               // the previous checkpoint, written or resumed from; "": none
  std::int64_t number = 0;          // the n-th checkpoint of the run; 0: an earlier version, which does not say
  std::optional<std::int64_t> fit;  // of the program's fits, the one that was begun last; unset: weights alone
  std::string program;              // shared by trainers that resume together; "": it resumes alone
  Timestamp time;
  std::map<std::string, double> metrics;  // by label/name
  bool weights_only = false;
  bool by_hand = false;  // by save_checkpoint(); earlier versions do not say
  std::string composer_version, libtorch_version;
  std::vector<File> files;
  int version = kVersion;

  COMPOSER_EXPORT const File* find(std::string_view file) const;
  // Returns the text of the file, which ends in a checksum of the rest. A text of more than util::kLongestJson bytes
  // could not be read again: metrics are left out of it, with a warning. Throws ConfigError if that is not enough, and
  // for text that is not UTF-8.
  COMPOSER_EXPORT std::string to_json() const;
  // Throws CheckpointError that begins with `path` for a text that differs from that of to_json() in any byte, and
  // NewerVersionError for a version above kVersion.
  COMPOSER_EXPORT static Manifest parse(std::string_view text, const std::string& path);
};

// Of two checkpoints of a run, the one that was written first. Time says so only where they have no number: it may have
// been reset.
COMPOSER_EXPORT bool is_older(const Manifest& a, const Manifest& b);

}  // namespace composer::saving
