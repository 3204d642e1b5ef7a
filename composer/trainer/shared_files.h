#pragma once
#include <filesystem>
#include <memory>

namespace composer {

namespace dist {
class World;
}  // namespace dist
namespace saving {
class Scratch;
}  // namespace saving

// A file of rank 0, or a folder with the files directly in it, as every rank can read it: the original if the rank sees
// the same file system, otherwise a copy that exists as long as this object. The constructor is a collective; the path
// of rank 0 is used.
class SharedFiles {
 public:
  SharedFiles(dist::World& world, const std::filesystem::path& of_rank_0);
  ~SharedFiles();
  SharedFiles(const SharedFiles&) = delete;
  SharedFiles& operator=(const SharedFiles&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::unique_ptr<saving::Scratch> copies_;
};

}  // namespace composer
