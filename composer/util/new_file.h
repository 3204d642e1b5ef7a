#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "composer/util/own_descriptor.h"

namespace composer::util {

// A file that appears whole or not at all: written under a temporary name in its folder, synced, then renamed. Removed
// if it is not committed; what a killed process has left of the same target is removed, too. If the target is a link,
// the file it leads to is replaced. Missing folders are created and synced. Everything throws Error, with the path and
// the system's reason.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path target);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void write_at(std::uint64_t offset, const void* data, std::size_t size);  // does not move write()
  void commit();

 private:
  void create();
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path target_, path_;
  OwnDescriptor descriptor_;
  std::uint64_t end_ = 0;  // of what write() has written
  bool committed_ = false;
};

// Removes what killed processes have left of new files at this target.
void remove_leftovers_of(const std::filesystem::path& target);

}  // namespace composer::util
