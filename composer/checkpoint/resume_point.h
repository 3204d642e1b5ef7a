#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "composer/checkpoint/folder.h"

namespace composer::saving {

// What a process goes on from, as it has chosen when it began, and what else was in the folder then. The choice and the
// ids are of one listing: what comes there later is another process's.
struct ResumePoint {
  std::optional<Found> found;  // unset: there is none
  // Ids of the checkpoints there. Unset: nobody looked, or a mirror may bring more.
  std::optional<std::set<std::string>> seen;
  std::string begins_again = {};  // id of a run that goes back to its beginning: its checkpoints are its own
};

inline std::set<std::string> ids_of(const std::vector<Found>& checkpoints) {
  std::set<std::string> ids;
  for (const Found& found : checkpoints) ids.insert(found.manifest.id);
  return ids;
}

}  // namespace composer::saving
