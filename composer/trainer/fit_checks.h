// Checks at the beginning of a fit, or at its first batch, that find options with which training would be useless or
// endless. Each function throws ConfigError or warns, and changes nothing. Internal.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/interval.h"
#include "composer/core/time.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace composer {

struct FitOutline;
struct State;
struct WeightsReport;
class Engine;
class Feed;
class StateDict;

// Ends a message about something that happens at the end of epochs, in a fit whose epochs do not end.
constexpr const char* kOnlyAtEnd = "so only end() does it";

// Checks a limit of a run or fit: it must be in a counted unit and not negative. It may be in iterations only if
// iterations end.
void check_limit(Time limit, const char* option, const OptionalTime& iteration_length);

// The limit multiplied by `ratio`, by which schedules are scaled. `where` names the call that must have schedulers if
// `ratio` is not 1.
OptionalTime scaled_limit(const OptionalTime& limit, double ratio, bool has_schedulers, const char* where = "");

// Whether the interval is neither the default nor off.
bool is_chosen(const Interval& eval_interval);

// Throws if there is no optimizer, and says why: none was `given`, or the model has no trainable parameters.
void check_has_optimizer(const State& state, bool given, const char* caller);

// Checks that every trainable parameter of the model is in a parameter group of the optimizer.
void check_trains_all(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer);

// Things that an optimizer which steps in backward cannot be combined with, because it changes the weights with the
// gradients of a microbatch or of a trial.
struct StepsOtherwise {
  bool whole_batches, scales_losses, tunes, several_ranks;
};
void check_step_in_backward(const torch::optim::Optimizer& optimizer, const Engine& engine, StepsOtherwise how);

// Checks that the state of the optimizer can be divided among ranks, if `zero_stage` requires it: the optimizer of a
// rank then steps while most parameters have no gradient.
void check_can_be_sharded(const torch::optim::Optimizer& optimizer, std::int64_t zero_stage);

// Checks that no evaluator has the label of the training loader.
void check_labels(const std::string& train_label, const std::vector<std::string>& eval_labels);

// Checks that the loader can be moved to this position: it must be at least as long as the loader from which training
// has read the epoch so far.
void check_position(Feed feed, std::uint64_t seed, std::int64_t epoch, std::int64_t batch);

// Checks that the limit is in neither epochs nor iterations of epochs if `feed` is empty: batches given by the caller
// have no epochs.
void check_epochs_end(Time limit, const OptionalTime& iteration_length, const Feed& feed);

// Checks that a share of the run can be converted into batches: the loader must know its length.
void check_share(const Interval& interval, const char* option, const Feed& feed);

// For batches without tokens: checks that `option` is not counted in tokens.
void check_without_tokens(const OptionalTime& time, const char* option);
void check_without_tokens(const Interval& interval, const char* option);

// Checks that the batches of a resumed run are the same as those that the saved run had read of its epoch: equal batch
// size and number of samples. `saved`: the hyperparameters in the checkpoint.
void check_same_batches(const StateDict& saved, const Timestamp& from, const Feed& feed);

// The same for a loader of which only the number of batches is known: `batches` in that epoch when it was saved.
void check_same_length(std::int64_t batches, const Timestamp& from, Feed feed, std::uint64_t seed, std::int64_t epoch);

// Warns if microbatches would be larger than the batches of the loader.
void check_can_split(std::int64_t samples, const Feed& feed);

// After weights were loaded that need not be complete. Throws CheckpointError if none of the file's tensors was loaded;
// warns if the model has tensors that were not in the file.
void check_loaded(const WeightsReport& report, const std::string& from);

}  // namespace composer
