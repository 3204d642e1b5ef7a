#pragma once
#include <string>

namespace composer::saving {

// The names of options in errors and warnings: a trainer has "save_folder", a plug-in "CheckpointSaver: folder".
struct OptionNames {
  const char* owner = "";
  const char* prefix = "save_";
  bool are_of_trainer() const { return *owner == '\0'; }
  std::string name(const char* option) const { return std::string(owner) + prefix + option; }
};

}  // namespace composer::saving
