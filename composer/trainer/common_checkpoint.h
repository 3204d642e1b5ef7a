#pragma once
// The newest checkpoint that trainers which resume together have in common: TrainerOptions::resume_with.
#include <string>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/resume_point.h"
#include "composer/trainer/saved_places.h"

namespace composer {

struct TrainerOptions;

// Whether a run of that name, or of any if that is empty, may go on from it.
bool can_go_on(const saving::Manifest& manifest, const std::string& run_name);

SavedPlace place_of(const saving::Manifest& manifest);

// Those of a folder from which a run of that name may go on, oldest first.
std::vector<saving::Found> whole_checkpoints(const std::string& folder, const std::string& run_name);

// The newest checkpoint of a trainer that others have, too: of the same batch of the same fit, and whole there as well.
// None: the run begins, or begins again.
saving::ResumePoint newest_in_common(const TrainerOptions& options);

}  // namespace composer
