#include "composer/checkpoint/walk.h"

#include <algorithm>

#include "composer/checkpoint/manifest.h"

namespace composer::saving {

namespace fs = std::filesystem;

std::vector<fs::path> paths_below(const fs::path& folder, Below what, std::error_code& error) {
  std::vector<fs::path> all;
  error.clear();
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const bool is_folder = it->is_directory() && !it->is_symlink();
    const bool leftover = it->path().filename().string().starts_with(kTemporary);
    const bool checkpoint = !leftover && is_folder && fs::exists(it->path() / Manifest::kFileName);
    if (what == Below::CHECKPOINTS ? checkpoint : leftover) all.push_back(it->path());
    if (is_folder && (checkpoint || leftover)) it.disable_recursion_pending();
  }
  std::ranges::sort(all);
  return all;
}

}  // namespace composer::saving
