#pragma once
#include "composer/core/error.h"
#include "composer/core/export.h"

namespace composer::formats {

// The file may be valid, but contains something that this version cannot read. Every other CheckpointError of a reader
// means that the file is damaged, missing or of another kind.
struct COMPOSER_EXPORT UnsupportedError : CheckpointError {
  using CheckpointError::CheckpointError;
  UnsupportedError(const UnsupportedError&) = default;
  UnsupportedError& operator=(const UnsupportedError&) = default;
  ~UnsupportedError() override;
};

}  // namespace composer::formats
