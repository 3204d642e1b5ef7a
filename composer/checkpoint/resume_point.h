#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "composer/checkpoint/folder.h"

namespace composer::saving {

// The checkpoint from which a process resumes, chosen at its start, and the other contents of the folder at that time.
// Both come from one listing: checkpoints that appear later belong to another process.
struct ResumePoint {
  std::optional<Found> found;  // unset: there is none
  // Ids of the checkpoints in the folder. Unset: the folder was not listed, or a mirror may add more.
  std::optional<std::set<std::string>> seen;
  // Id of a run that starts again from the beginning: checkpoints with this id are its own.
  std::string begins_again = {};
};

inline std::set<std::string> ids_of(const std::vector<Found>& checkpoints) {
  std::set<std::string> ids;
  for (const Found& found : checkpoints) ids.insert(found.manifest.id);
  return ids;
}

}  // namespace composer::saving
