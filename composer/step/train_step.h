#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/logger.h"
#include "composer/core/loss_weight.h"
#include "composer/core/state.h"
#include "composer/dist/options.h"
#include "composer/optim/grad_scaler.h"
#include "composer/step/auto_microbatch.h"
#include "composer/step/batch_losses.h"
#include "composer/step/computation.h"
#include "composer/step/feed.h"
#include "composer/step/gradient_sync.h"
#include "composer/step/loss_scaling.h"
#include "composer/step/microbatch_repeat.h"
#include "composer/step/microbatch_size.h"
#include "composer/step/outside_leaves.h"
#include "composer/step/part_weights.h"
#include "composer/step/step_graph.h"
#include "composer/step/training_metrics.h"

namespace composer {

class BatchUndo;
class StateVisitor;
class StepRule;

// How one batch is trained: the kernels between the events of loop.cpp. The gradient is that of the whole batch,
// however it is split: each microbatch counts by its share of what the loss is a mean over (Model::loss_weight, else
// the samples, or the loss-generating tokens that a DataSpec counts).
class TrainStep {
 public:
  // Makes the gradients of the batch, and returns its loss. What algorithms do to gradients, and what others see,
  // belongs to a pass that counts.
  using TrainBatch = std::function<at::Tensor(bool counts)>;

  TrainStep(State& state, Logger& logger, bool weigh_by_tokens)
      : state_(state), part_weights_(state, weigh_by_tokens), scaling_(state), metrics_(state, logger), losses_(state, logger) {}

  // Until the next call, losses are scaled as the precision or the options ask for. The scale stays what it is.
  void scale_losses(Precision precision, const std::optional<optim::GradScalerOptions>& scaling) {
    scaling_.use(precision, scaling);
    losses_.expect_nan(scaling_.is_on());
  }
  bool has_scaler() const { return scaling_.has_scale(); }  // once losses were to be scaled
  // From now on; bytes are what a batch may allocate if the size is "auto", 0: what there is.
  void set_microbatch_size(MicrobatchSize size, std::int64_t bytes);
  MicrobatchSize microbatch_size() const {
    return auto_ ? MicrobatchSize("auto") : MicrobatchSize(state_.device_train_microbatch_size);
  }
  bool trains_whole_batches() const { return !auto_ && state_.device_train_microbatch_size == 0; }
  void set_metrics(MetricSet metrics) { metrics_.use(std::move(metrics)); }
  const MetricSet& metrics() const { return metrics_.set(); }
  // With several ranks: batches are those of all of them, from now on. Within an Apart scope they are this rank's
  // alone.
  void join_ranks(std::shared_ptr<dist::World> world, const dist::DistributedOptions& options) {
    sync_ = std::make_unique<GradientSync>(state_, std::move(world), options);
  }
  GradientSync* ranks() const { return apart_ ? nullptr : sync_.get(); }  // nullptr: this one is alone
  // Of which rank has what of the optimizer; null: each has all.
  OptimizerShards* optimizer_shards() const { return sync_ ? sync_->optimizer_shards() : nullptr; }
  class Apart {
   public:
    explicit Apart(TrainStep& step) : step_(step), before_(std::exchange(step.apart_, true)) {}
    ~Apart() { step_.apart_ = before_; }
    Apart(const Apart&) = delete;
    Apart& operator=(const Apart&) = delete;

   private:
    TrainStep& step_;
    bool before_;
  };
  // Of the batch that was started last, over all ranks.
  std::int64_t samples(const Feed& feed) const { return ranks() ? of_all_.samples : feed.samples(); }
  std::int64_t tokens(const Feed& feed) const { return ranks() ? of_all_.tokens : feed.tokens_left(whole_); }
  // Throws ConfigError for algorithms that need all gradients, where a rank has only some.
  void check_divides(const Engine& engine) const;
  std::optional<std::int64_t> nan_since() const { return losses_.nan_since(); }
  // What start() was told, as the mean over ranks.
  Seconds spent() const { return Seconds(of_all_.seconds); }
  // Before the first batch of a fit.
  void begin_fit() { part_weights_.begin_fit(); }
  // Of the algorithm that has one. Throws ConfigError for two of them, and for an optimizer that steps in backward.
  void use_rule(const Engine& engine);
  // Until the fit ends, batches are trained by a graph where that can be.
  void use_graph(const Engine& engine);
  void end_fit();

  // state.batch is the whole batch. `spent`: since the last batch was started, of which ranks tell each other.
  void start(const Feed& feed, Seconds spent = {});
  // One step of the optimizer with the gradients that `train_batch` makes, which it may call several times: because the
  // optimizer wants so, or because memory was short and the size of microbatches is "auto". A StepRule may add passes
  // over the batch before it.
  void step_optimizer(const Feed& feed, const TrainBatch& train_batch);
  void zero_gradients();
  std::size_t num_microbatches() const { return microbatches_.size(); }
  // state.batch becomes that one, on the device. One without weight (no target that counts) passes through all events
  // with a loss of 0 and changes no gradients.
  void enter(const Feed& feed, std::size_t microbatch);
  void forward();
  void loss();
  // After loss(): warns of trainable tensors that are neither trained nor saved.
  void warn_of_outside_leaves() const { composer::warn_of_outside_leaves(state_, whole_); }
  void backward();
  void update_metrics() {
    if (!measured_) metrics_.update();
  }
  void leave();  // state.batch is the whole batch again, state.batch_loss what it has cost; gradients are final
  void forget_batch();
  void abandon();  // an error came between start() and leave(): state.batch becomes the whole batch
  void visit_state(StateVisitor& visit);  // without a scaler, one that is loaded is only checked
  // As Run says of them, of the microbatch that was entered last.
  void keep_random() { repeat_.keep_random(); }
  void repeat(bool backward);
  std::vector<std::int64_t> sample_indices(const Feed& feed) const;
  void log() { losses_.log(microbatch_size_); }  // what the batch has shown, at the step before it is counted
  void report_metrics() { metrics_.report(ranks() ? ranks()->world() : nullptr); }

 private:
  struct Microbatch {
    Batch batch;             // empty if the whole batch is the only one
    LossWeight weight = {};  // unknown: it is a trial
    double counted = 0;      // instead, if the loss that this is the weight of does not run
    bool first = true;
    std::int64_t shard = 0;  // with virtual shards
  };

  std::int64_t samples_at_once(const Feed& feed) const;
  void split(const Feed& feed);
  void weigh(const Feed& feed);
  bool is_last() const { return index_ == last_; }
  void enter(const Feed& feed, const Batch& batch, bool first);
  const Batch& batch_of(const Microbatch& microbatch) const { return is_split_ ? microbatch.batch : whole_; }
  void step_once(const std::function<at::Tensor()>& closure);
  void choose_microbatch_size(const Feed& feed);
  void try_microbatches(const Feed& feed, std::int64_t size);
  void take_back(BatchUndo& undo);
  at::Tensor make_gradients(const TrainBatch& train_batch);
  void rehearse(const TrainBatch& train_batch);
  void split_into_shards(const Feed& feed);
  LossWeight share_of_gradient() const { return ranks() ? share_ * ranks()->factor() : share_; }
  void lose_loss();
  void weigh_loss(bool told);
  void stop_gradients_of_nothing();
  bool counts() const { return !share_.is(0); }
  bool divides_gradients() const { return optimizer_shards() && optimizer_shards()->divides_gradients(); }

  State& state_;
  PartWeights part_weights_;
  LossScaling scaling_;
  TrainingMetrics metrics_;
  BatchLosses losses_;
  EagerComputation eager_{state_, scaling_};
  StepGraph graph_{state_, eager_};
  Computation* computation_ = &eager_;  // the one of this fit
  MicrobatchRepeat repeat_{state_, eager_};
  std::optional<AutoMicrobatch> auto_;
  std::unique_ptr<GradientSync> sync_;  // null: there is one rank
  bool apart_ = false;
  GradientSync::Counts of_all_;
  Seconds spent_{};           // by this rank, until the others are told
  Batch whole_;               // as it came from the loader
  std::int64_t samples_ = 0;  // of it, if the size of microbatches is "auto"
  bool is_split_ = false;
  std::vector<Microbatch> microbatches_;
  std::int64_t microbatch_size_ = 0;  // as logged: that of the loader's batches, if none was asked for
  LossWeight weight_;            // of all microbatches, before algorithms and their transforms; unknown: not yet
  double counted_ = 0;           // of all microbatches, as theirs
  LossWeight share_ = 1;         // of the current microbatch in it
  std::size_t index_ = 0;        // of the current microbatch
  std::size_t last_ = 0;         // of those that have a weight
  Microbatch current_;           // without its batch
  StepRule* rule_ = nullptr;
  bool measured_ = false;  // a pass of the rule has shown the losses and metrics of the batch
  std::string rule_name_;
};

}  // namespace composer
