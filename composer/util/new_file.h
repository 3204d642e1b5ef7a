#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "composer/util/own_descriptor.h"

namespace composer::util {

// A file that appears complete or not at all: it is written under a temporary name in its folder, synced, then renamed.
// It is removed if it is not committed, and so are leftovers of killed processes that wrote the same target. If the
// target is a link, the file it leads to is replaced. Missing folders are created and synced. All functions throw Error
// with the path and the system's reason.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path target);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void write_at(std::uint64_t offset, const void* data, std::size_t size);  // does not change where write() continues
  void commit();

 private:
  void create();
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path target_, path_;
  OwnDescriptor descriptor_;
  std::uint64_t end_ = 0;  // end of what write() has written
  bool committed_ = false;
};

// Writes a file with this content by NewFile. Throws Error.
void write_whole_file(const std::filesystem::path& target, std::string_view content);

// Removes the temporary files that killed processes have left for this target.
void remove_leftovers_of(const std::filesystem::path& target);

}  // namespace composer::util
