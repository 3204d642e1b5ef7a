#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/optim/grad_scaler.h"
#include "composer/step/auto_microbatch.h"
#include "composer/step/batch_losses.h"
#include "composer/step/computation.h"
#include "composer/step/epoch_means.h"
#include "composer/step/feed.h"
#include "composer/step/gradient_passes.h"
#include "composer/step/joined_ranks.h"
#include "composer/step/loss_scaling.h"
#include "composer/step/microbatch_repeat.h"
#include "composer/step/microbatch_size.h"
#include "composer/step/microbatches.h"
#include "composer/step/step_graph.h"
#include "composer/step/training_metrics.h"

namespace composer {

class Engine;
class StateVisitor;

// Trains one batch: the computations between the events of loop.cpp. The parts of a step belong to classes that do not
// know each other; this class calls them in order.
class TrainStep {
 public:
  using TrainBatch = GradientPasses::TrainBatch;

  TrainStep(State& state, Logger& logger, bool weigh_by_tokens)
      : state_(state),
        logger_(logger),
        microbatches_(state, weigh_by_tokens),
        metrics_(state, logger),
        losses_(state, logger) {}
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Until the next call, losses are scaled as the precision or the options say. An existing scale keeps its value.
  void scale_losses(Precision precision, const std::optional<optim::GradScalerOptions>& scaling);
  bool has_scaler() const { return scaling_.has_scale(); }  // whether losses were ever scaled
  // Applies from now on. `bytes`: the memory that a batch may allocate if the size is "auto"; 0: all that is free.
  void set_microbatch_size(MicrobatchSize size, std::int64_t bytes);
  MicrobatchSize microbatch_size() const {
    return auto_ ? MicrobatchSize("auto") : MicrobatchSize(state_.device_train_microbatch_size);
  }
  void set_metrics(MetricSet metrics) { metrics_.use(std::move(metrics)); }
  const MetricSet& metrics() const { return metrics_.set(); }
  JoinedRanks& ranks() { return ranks_; }
  const JoinedRanks& ranks() const { return ranks_; }
  // The parts of the batch that was started last.
  const Microbatches& microbatches() const { return microbatches_; }

  // Until the fit ends, the algorithm with a StepRule makes gradients, if there is one. With `recorded`, batches are
  // recorded and replayed where possible. Throws ConfigError for two rules, and for a rule with an optimizer that steps
  // in backward.
  void begin_fit(const Engine& engine, bool recorded);
  void end_fit();

  // state.batch is the whole batch. `spent`: time since the last batch was started; ranks exchange it.
  void start(const Feed& feed, Seconds spent = {});
  // One step of the optimizer with the gradients that `train_batch` makes. `train_batch` may be called several times:
  // by the optimizer, after running out of memory if the size of microbatches is "auto", or by a StepRule.
  void step_optimizer(const Feed& feed, const TrainBatch& train_batch);
  void zero_gradients();
  // Makes the microbatch state.batch, on the device. A microbatch without weight (no target that counts) passes through
  // all events with a loss of 0 and changes no gradients.
  void enter(const Feed& feed, std::size_t microbatch);
  void forward();
  void loss();
  // To be called after loss(): warns about trainable tensors that are neither trained nor saved.
  void warn_of_outside_leaves() const;
  void backward();
  void update_metrics();
  void leave();  // makes the whole batch state.batch again; gradients and state.batch_loss are final then
  void log();    // logs the losses of the batch, at the step before it is counted
  // At the end of an epoch, before it is counted: logs metrics and the means of the epoch.
  void log_epoch();
  void set_on_nan(OnNaN what) { losses_.set_on_nan(what); }
  void stop_if_last_is_nan() const { losses_.stop_if_last_is_nan(); }
  void warn_of_nan() const { losses_.warn_of_nan(); }

  // For Run, on the microbatch that was entered last.
  void keep_random() { repeat_.keep_random(); }
  void repeat(bool backward);
  void abandon() { state_.batch = microbatches_.whole(); }  // to be called after an error between start() and leave()
  void forget_batch();
  void visit_state(StateVisitor& visit);  // without a scaler, a loaded one is only checked

 private:
  void choose_microbatch_size(const Feed& feed);
  void try_microbatches(const Feed& feed, std::int64_t size);

  State& state_;
  Logger& logger_;
  Microbatches microbatches_;
  GradientPasses passes_{state_};
  LossScaling scaling_{state_};
  EagerComputation eager_{state_, scaling_};
  StepGraph graph_{state_, eager_};
  Computation* computation_ = &eager_;  // the computation of this fit
  MicrobatchRepeat repeat_{state_, eager_};
  std::optional<AutoMicrobatch> auto_;  // unset unless the size of microbatches is "auto"
  TrainingMetrics metrics_;
  BatchLosses losses_;
  EpochMeans means_;
  JoinedRanks ranks_;
};

}  // namespace composer
