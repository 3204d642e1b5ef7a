#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "composer/core/export.h"

namespace composer::util {

enum class TemporaryKind : std::uint8_t { FILE, FOLDER };

// Makes a new, empty file or folder PREFIXxxxxxx in `parent`, for this user alone. Throws Error.
std::filesystem::path make_temporary(TemporaryKind kind, const std::filesystem::path& parent,
                                     const std::string& prefix);

// One in the system's folder for temporary files, removed by the destructor with all that is in it.
class COMPOSER_EXPORT Temporary {
 public:
  Temporary(TemporaryKind kind, const std::string& prefix);  // throws Error
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void keep() { stays_ = true; }  // it is not removed

 private:
  std::filesystem::path path_;
  bool stays_ = false;
};

}  // namespace composer::util
