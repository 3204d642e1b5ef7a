// The kinds of cases of checkpoints.json.
#pragma once
#include <functional>

#include "composer/trainer/trainer.h"
#include "tests/replay/replay.h"

namespace composer::replay {

// Ten samples of the recorded data, one of the recorded models, SGD with momentum, run name "myrun". Throws
// Unsupported.
TrainerOptions checkpoint_options(const Json& config, const Context& context);
// Trains; {"error", "saved_checkpoints"}. `loaded` sees the trainer before it begins.
Json run_once(const Json& config, const Context& context, const Json& recorded,
              const std::function<void(Trainer&)>& loaded = {});

Outcome run_resume(const Json& c, const Context& context);
Outcome run_keys(const Json& c, const Context& context);
Outcome run_misuse(const Json& c, const Context& context);

// In the form in which these compare.
Rules resume_rules();
Rules keys_rules();
Rules misuse_rules();

}  // namespace composer::replay
