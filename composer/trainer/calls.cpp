#include "composer/trainer/calls.h"

#include <string>

#include "composer/core/engine.h"
#include "composer/core/error.h"

namespace composer {
namespace {

constexpr const char* kWhereToSave =
    "call it at batch_checkpoint, epoch_checkpoint or iteration_checkpoint, which come after the evaluation, or "
    "between two steps";

}  // namespace

void Calls::require_idle(const char* call) const {
  require_no_trial(call);
  if (busy_)
    throw ConfigError("Trainer: ", call, " inside of another call, after ", to_string(last_),
                      "; a callback can ask to stop (state.stop.ask), but not train or close");
}

void Calls::require_no_trial(const char* call) const {
  if (trial_) throw ConfigError("Trainer: ", call, " inside of find_lr(), whose steps are undone");
}

void Calls::require_own_weights(const char* call, const Engine& engine) const {
  if (const std::string* algorithm = engine.open_algorithm())
    throw ConfigError(call, ": at ", to_string(last_), ' ', *algorithm, " may have exchanged the weights; ",
                      kWhereToSave);
}

void Calls::require_exact_place(const char* call) const {
  const Event at = last_of_training_;
  const bool is_exact = at == Event::FIT_START || at == Event::BATCH_CHECKPOINT || at == Event::EPOCH_CHECKPOINT ||
                        at == Event::ITERATION_CHECKPOINT || at == Event::FIT_END;
  if (busy_ && !is_exact)
    throw ConfigError(call, ": a run cannot go on exactly from ", to_string(last_), "; ", kWhereToSave);
}

}  // namespace composer
