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

// A file of rank 0, or a folder with the files directly in it, as every rank can read it: where it is, if the rank sees
// the same file system, else a copy that exists as long as this. All ranks make one together; the path of rank 0
// counts.
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
