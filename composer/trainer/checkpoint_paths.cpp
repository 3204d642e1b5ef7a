#include "composer/trainer/checkpoint_paths.h"

#include <cstddef>

#include "composer/checkpoint/run_saver.h"
#include "composer/trainer/ranks.h"

namespace composer {

// Sends the paths as text: the best, then all, each followed by a zero byte, which no path contains.
void CheckpointPaths::share() {
  if (ranks_.alone()) return;
  std::string text;
  if (saver_) {
    text = saver_->best_path(state_).value_or("") + '\0';
    for (const std::string& path : saver_->paths()) text += path + '\0';
  }
  text = ranks_.same(text);
  std::vector<std::string> paths;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = text.find('\0', begin);
    paths.push_back(text.substr(begin, end - begin));
  }
  shared_.clear();
  shared_best_.reset();
  if (paths.empty()) return;
  if (!paths.front().empty()) shared_best_ = paths.front();
  shared_.assign(paths.begin() + 1, paths.end());
}

std::vector<std::string> CheckpointPaths::all() const { return saver_ ? saver_->paths() : shared_; }

std::optional<std::string> CheckpointPaths::best() const { return saver_ ? saver_->best_path(state_) : shared_best_; }

}  // namespace composer
