#include "composer/core/redrawn_line.h"

#include <mutex>
#include <utility>
#include <vector>

namespace composer {
namespace {

struct Lines {
  std::recursive_mutex mutex;  // recursive, because a stream that is drawn to may warn
  std::vector<RedrawnLine*> all;
};
Lines& lines() {
  static Lines* the_one = new Lines;  // never destroyed, because threads may warn while the process ends
  return *the_one;
}

}  // namespace

RedrawnLine::RedrawnLine(std::function<void()> remove) : remove_(std::move(remove)) {
  const std::lock_guard lock(lines().mutex);
  lines().all.push_back(this);
}

RedrawnLine::~RedrawnLine() {
  const std::lock_guard lock(lines().mutex);
  std::erase(lines().all, this);
}

void RedrawnLine::draw(const std::function<void()>& write) const {
  const std::lock_guard lock(lines().mutex);
  write();
}

void RedrawnLine::write_below(const std::function<void()>& write) {
  const std::lock_guard lock(lines().mutex);
  for (const RedrawnLine* line : lines().all) line->remove_();
  write();
}

}  // namespace composer
