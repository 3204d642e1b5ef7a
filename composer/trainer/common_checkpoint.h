#pragma once
// Finds the newest checkpoint that trainers which resume together have in common: TrainerOptions::resume_with.
#include <string>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/resume_point.h"
#include "composer/trainer/saved_places.h"

namespace composer {

struct TrainerOptions;

// Whether a run with this name can resume from the checkpoint. An empty name means any run.
bool can_resume(const saving::Manifest& manifest, const std::string& run_name);

SavedPlace place_of(const saving::Manifest& manifest);

// The checkpoints of a folder from which a run with this name can resume, oldest first.
std::vector<saving::Found> whole_checkpoints(const std::string& folder, const std::string& run_name);

// The newest checkpoint that a trainer has in common with the others: of the same batch of the same fit, and undamaged
// in all folders. If there is none, the run begins, or begins again.
saving::ResumePoint newest_in_common(const TrainerOptions& options);

}  // namespace composer
