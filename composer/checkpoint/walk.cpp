#include "composer/checkpoint/walk.h"

#include <utility>

#include "composer/checkpoint/manifest.h"

namespace composer::saving {

namespace fs = std::filesystem;

namespace {

using Kind = Below::Kind;
using Type = FileSystem::Type;

void add(const fs::path& folder, FileSystem& files, std::vector<Below>& all) {
  for (const FileSystem::Item& item : files.list(folder)) {
    const fs::path path = folder / item.name;
    const std::size_t at = all.size();
    all.push_back({path, item.name.starts_with(kTemporary) ? Kind::LEFTOVER : Kind::OTHER});
    if (item.type != Type::FOLDER || all[at].kind == Kind::LEFTOVER) continue;
    try {
      if (files.type(path / Manifest::kFileName) != Type::NONE)
        all[at].kind = Kind::CHECKPOINT;
      else
        add(path, files, all);
    } catch (const FileError& error) {
      all.resize(at + 1);
      if (error.is_denied())
        all[at].kind = Kind::UNREADABLE;
      else if (error.is_missing())
        all.pop_back();  // removed since it was listed
      else
        throw;
    }
  }
}

}  // namespace

std::vector<Below> walk(const fs::path& folder, FileSystem& files) {
  std::vector<Below> all;
  const Type type = files.type(folder);
  try {
    if (type == Type::FOLDER || type == Type::LINK) add(folder, files, all);
  } catch (const FileError& error) {
    if (type != Type::LINK || !error.is_missing()) throw;  // otherwise the link does not lead to a folder
  }
  return all;
}

std::vector<fs::path> paths_below(const fs::path& folder, Kind kind, FileSystem& files) {
  std::vector<fs::path> paths;
  for (Below& below : walk(folder, files))
    if (below.kind == kind) paths.push_back(std::move(below.path));
  return paths;
}

}  // namespace composer::saving
