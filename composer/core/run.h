#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/event.h"
#include "composer/core/export.h"
#include "composer/core/interval.h"
#include "composer/core/state_dict.h"
#include "composer/core/weights_use.h"

namespace composer {

class Model;

// What to take of a checkpoint.
struct LoadOptions {
  std::string path = {};  // its folder, or a file of weights; {run_name} is replaced
  bool weights_only = false;
  bool strict_model_weights = true;           // false: the model may have more or fewer weights
  std::vector<std::string> ignore_keys = {};  // globs of what is not loaded
};

// The run that a State belongs to, for plug-ins that save and load it whole: state.run. Those who see the state const
// can save. Once the trainer is closed every call throws Error, but for interrupted() and pauses() (false) and
// time_left() (unset): a copy of the state may outlive it.
class COMPOSER_EXPORT Run {
 public:
  virtual ~Run();

  // All that the run needs to go on, or only its weights, under "model". The tensors are the run's own, not copies.
  virtual StateDict snapshot(bool weights_only) const = 0;
  // Calls `act` with the model in evaluation mode, without gradients, with the weights that an algorithm hands out for
  // this use. Operators draw from generators of their own, seeded with `seed`. Then, also after an exception, weights,
  // modes and random numbers of the training are what they were. `act` must not change the model.
  virtual void with_model(WeightsUse use, std::uint64_t seed, const std::function<void(Model& model)>& act) const;
  // Which weights there are: another number if they, or those that an algorithm hands out for evaluation, may have
  // changed since the last call; then no value of state.metrics is current that was set before. Weights that are put
  // into the model for an evaluation, and taken out again, change nothing.
  virtual std::uint64_t weights_version() const;
  // For intervals that are asked about at a *_CHECKPOINT event. Not before something has been counted.
  virtual IntervalMoment moment(Event event) const = 0;
  virtual bool interrupted() const = 0;  // a signal has asked this fit to end
  // Whether a process that starts this run again resumes it from its save folder, which a fit locks for it.
  virtual bool is_resumable() const;
  // Whether an earlier one was killed or has failed, and has left no checkpoint: what it began is this run's.
  virtual bool begins_again() const;
  // Until the process is killed, after a signal. From any thread.
  virtual std::optional<Seconds> time_left() const = 0;

  // For who looks for the cause of a number that is not finite. keep_random(), at BEFORE_FORWARD, remembers the random
  // numbers to come; repeat_microbatch(), at AFTER_LOSS or AFTER_BACKWARD of the same microbatch, runs its forward and
  // loss, and with `backward` the backward pass, with these numbers once more. No algorithm takes part, no event fires,
  // and nothing of it stays. By default nothing is kept, and to repeat is an Error.
  virtual void keep_random() const;
  virtual void repeat_microbatch(bool backward) const;
  // The indices in the data set of the samples in state.batch, in a fit; empty if the loader does not know.
  virtual std::vector<std::int64_t> sample_indices() const;

  // Throws CheckpointError, before anything is changed, if the weights do not fit.
  virtual void load(const LoadOptions& options) = 0;

  // The same in every process that starts this run again, and in no other run: made of the name that the program has
  // given it, and of its save folder. Empty unless it is resumable.
  virtual std::string identity() const;
  // For a plug-in, `by`, that writes checkpoints of its own on rank 0: the id of the run that these have, the same in
  // every process that goes on with this run, or begins it again, and no other run's. Empty unless it is resumable.
  // Throws ConfigError that begins with `who` if the trainer or another plug-in writes such names into this folder, or
  // if it is the trainer's and these are `whole`: the trainer would go on from them, and take them for its own.
  virtual std::string claim_checkpoints(const void* by, const char* who, const std::string& folder,
                                        const std::string& filename, bool whole) const;
  // From FIT_END on: whether a request to stop has ended the fit, and another one goes on from there. Who judges a run
  // leaves out the evaluation that follows: without the pause there is none.
  virtual bool pauses() const;
};

}  // namespace composer
