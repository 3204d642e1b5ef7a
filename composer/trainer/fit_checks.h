// What is told when a fit begins, or at its first batch, instead of training for nothing or for ever. Each function
// throws ConfigError or warns, and changes nothing. Internal.
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

// Of what comes at the end of epochs, in a fit that has none.
constexpr const char* kOnlyAtEnd = "so only end() does it";

// A limit of a run or fit: counted, and not before the start; in iterations only if these end.
void check_limit(Time limit, const char* option, const OptionalTime& iteration_length);

// What is left of a limit when schedules are scaled by `ratio`. `where` says in which call these would have to be.
OptionalTime scaled_limit(const OptionalTime& limit, double ratio, bool has_schedulers, const char* where = "");

// Neither the default nor off.
bool is_chosen(const Interval& eval_interval);

// Why there is no optimizer: none was `given`, or the model has nothing to train.
void check_has_optimizer(const State& state, bool given, const char* caller);

// Every trainable parameter of the model is in a group of the optimizer.
void check_trains_all(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer);

// An optimizer that steps in backward changes the weights with the gradients of a microbatch, or of a trial.
struct StepsOtherwise {
  bool whole_batches, scales_losses, tunes, several_ranks;
};
void check_step_in_backward(const torch::optim::Optimizer& optimizer, const Engine& engine, StepsOtherwise how);

// The state of the optimizer can be divided among ranks, if `zero_stage` asks for that: a rank steps one of which most
// parameters have no gradient.
void check_can_be_sharded(const torch::optim::Optimizer& optimizer, std::int64_t zero_stage);

// No evaluator reports under the label of the training loader.
void check_labels(const std::string& train_label, const std::vector<std::string>& eval_labels);

// The loader has this position: it is as long as the one that training has read of the epoch so far.
void check_position(Feed feed, std::uint64_t seed, std::int64_t epoch, std::int64_t batch);

// The limit is not in epochs, nor in iterations of epochs, if `feed` is empty: batches that are given have no epochs.
void check_epochs_end(Time limit, const OptionalTime& iteration_length, const Feed& feed);

// A share of the run is a number of batches only if the loader knows its length.
void check_share(const Interval& interval, const char* option, const Feed& feed);

// `option` does not count tokens; for batches without any.
void check_without_tokens(const OptionalTime& time, const char* option);
void check_without_tokens(const Interval& interval, const char* option);

// The batches of a resumed run are those of the saved one as far as it had come in its epoch: as large, and of as many
// samples. `saved` are the hyperparameters of its checkpoint.
void check_same_batches(const StateDict& saved, const Timestamp& from, const Feed& feed);

// Warns of microbatches of so many samples, if a batch has fewer.
void check_can_split(std::int64_t samples, const Feed& feed);

// For weights that need not be all there. Throws CheckpointError if none of the file's tensors was loaded;
// warns if the model has some that were not in the file.
void check_loaded(const WeightsReport& report, const std::string& from);

}  // namespace composer
