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

// What to load from a checkpoint.
struct LoadOptions {
  std::string path = {};                      // its folder, or a file of weights; {run_name} is replaced
  bool weights_only = false;                  // loads only the weights
  bool strict_model_weights = true;           // false: the model may have more or fewer weights
  std::vector<std::string> ignore_keys = {};  // globs for keys that are not loaded
};

// The run that a State belongs to, for plug-ins that save or load the whole run: state.run. Through a const State only
// the const functions can be called, which include saving. Once the trainer is closed, every call throws Error, except
// interrupted() and pauses() (false) and time_left() (unset), because a copy of the state may outlive the trainer.
class COMPOSER_EXPORT Run {
 public:
  virtual ~Run();

  // Everything that the run needs to continue, or only its weights, under "model". The tensors are the run's own, not
  // copies.
  virtual StateDict snapshot(bool weights_only) const = 0;
  // Calls `act` with the model in evaluation mode, without gradients, and with the weights that an algorithm returns
  // for this use. Operators draw from separate generators, seeded with `seed`. Afterwards, also after an exception, the
  // weights, modes and random numbers of training are restored. `act` must not change the model.
  virtual void with_model(WeightsUse use, std::uint64_t seed, const std::function<void(Model& model)>& act) const;
  // A number that changes if the weights, or the weights that an algorithm returns for evaluation, may have changed
  // since the last call. In that case, values of state.metrics that were set before are no longer current. Exchanging
  // weights for an evaluation and back does not change the number.
  virtual std::uint64_t weights_version() const;
  // For intervals that are checked at a *_CHECKPOINT event. Requires that a batch, epoch or iteration has been counted.
  virtual IntervalMoment moment(Event event) const = 0;
  virtual bool interrupted() const = 0;  // a signal has requested the end of this fit
  // Whether a process that runs the same program again resumes this run from its save folder, which a fit locks.
  virtual bool is_resumable() const;
  // Whether an earlier process of this run was killed or failed before it wrote a checkpoint. Its files belong to this
  // run.
  virtual bool begins_again() const;
  // The time until the process is killed, after a signal; otherwise unset. Any thread may call this.
  virtual std::optional<Seconds> time_left() const = 0;

  // For plug-ins that look for the cause of a number that is not finite. keep_random(), at BEFORE_FORWARD, stores the
  // state of the random numbers. repeat_microbatch(), at AFTER_LOSS or AFTER_BACKWARD of the same microbatch, repeats
  // its forward pass and loss, and with `backward` the backward pass, with the same random numbers. No algorithm takes
  // part, no event is fired, and all changes are undone. By default nothing is stored, and repeat_microbatch() throws
  // Error.
  virtual void keep_random() const;
  virtual void repeat_microbatch(bool backward) const;
  // The indices in the data set of the samples in state.batch, during a fit; empty if the loader does not know them.
  virtual std::vector<std::int64_t> sample_indices() const;

  // Throws CheckpointError, before anything is changed, if the weights do not match.
  virtual void load(const LoadOptions& options) = 0;

  // A text that is the same in every process of this run, and differs for other runs. It is made from the run name
  // given by the program, and the save folder. Empty unless the run is resumable.
  virtual std::string identity() const;
  // For a plug-in, `by`, that writes checkpoints of its own on rank 0. Returns their run id, which is the same in every
  // process that resumes or restarts this run, and differs for other runs; empty unless the run is resumable. Throws
  // ConfigError, which begins with `who`, if the trainer or another plug-in writes such names into this folder. It also
  // throws if this is the trainer's folder and the checkpoints are `whole`, because the trainer would take them for its
  // own and resume from them.
  virtual std::string claim_checkpoints(const void* by, const char* who, const std::string& folder,
                                        const std::string& filename, bool whole) const;
  // From FIT_END on: whether a request to stop has ended the fit, and a later fit continues from there. Plug-ins that
  // judge a run should ignore the evaluation that follows, because a run without the pause does not have it.
  virtual bool pauses() const;
};

}  // namespace composer
