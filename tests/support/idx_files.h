#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

namespace composer::test {

// A folder that is gone with this.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

using Bytes = std::string;

// An idx file of these elements.
Bytes idx(const std::vector<std::uint32_t>& shape, const Bytes& elements, char type = 8);
Bytes gzip(const Bytes& bytes);
void write(const std::filesystem::path& file, const Bytes& bytes);

}  // namespace composer::test
