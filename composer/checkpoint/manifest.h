#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer::saving {

// A newer libcomposer has written it.
struct COMPOSER_EXPORT NewerVersionError : CheckpointError {
  using CheckpointError::CheckpointError;
  NewerVersionError(const NewerVersionError&) = default;
  NewerVersionError& operator=(const NewerVersionError&) = default;
  ~NewerVersionError() override;
};

// Commits a checkpoint: a folder without a complete manifest.json is not a checkpoint (docs/checkpoint-format.md).
struct Manifest {
  struct File {
    std::string name;
    std::uint64_t size = 0;
    std::string checksum;  // its header's, which covers all its bytes; in version 1 of all its bytes at once
  };
  static constexpr int kVersion = 2;  // what is written; version 1 is read, too
  static constexpr const char* kFileName = "manifest.json";

  std::string id;    // of this checkpoint, also in its files
  std::string name;  // of the folder when it was written
  std::string run_name;
  std::string run_id;  // of the run and those that go on from its checkpoints
  std::string parent;  // the checkpoint that was written, or resumed from, before; "": none
  Timestamp time;
  std::map<std::string, double> metrics;  // by label/name
  bool weights_only = false;
  std::string composer_version, libtorch_version;
  std::vector<File> files;
  int version = kVersion;

  COMPOSER_EXPORT const File* find(std::string_view file) const;
  // The text of the file; ends in a checksum of all before it. Throws ConfigError for texts that are not UTF-8.
  COMPOSER_EXPORT std::string to_json() const;
  // Throws CheckpointError, which begins with `path`, for any text that differs from to_json()'s in a byte;
  // NewerVersionError for a version above kVersion.
  COMPOSER_EXPORT static Manifest parse(std::string_view text, const std::string& path);
};

}  // namespace composer::saving
