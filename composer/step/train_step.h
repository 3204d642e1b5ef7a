#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/optim/grad_scaler.h"
#include "composer/step/auto_microbatch.h"
#include "composer/step/feed.h"
#include "composer/step/metric_set.h"
#include "composer/step/microbatch_size.h"
#include "composer/step/step_graph.h"

namespace composer {

class BatchUndo;
class StateVisitor;

// How one batch is trained: the kernels between the events of loop.cpp. The gradient is that of the mean over the
// batch's samples (or loss-generating tokens), however it is split: each microbatch counts by its share of them.
class TrainStep {
 public:
  using TrainBatch = std::function<at::Tensor()>;

  TrainStep(State& state, Logger& logger, bool weigh_by_tokens)
      : state_(state), logger_(logger), weigh_by_tokens_(weigh_by_tokens) {}

  // Until the next call, losses are scaled as the precision or the options ask for. The scale stays what it is.
  void scale_losses(Precision precision, const std::optional<optim::GradScalerOptions>& scaling);
  // From now on; bytes are what a batch may allocate if the size is "auto", 0: what there is.
  void set_microbatch_size(MicrobatchSize size, std::int64_t bytes);
  MicrobatchSize microbatch_size() const {
    return auto_ ? MicrobatchSize("auto") : MicrobatchSize(state_.device_train_microbatch_size);
  }
  bool trains_whole_batches() const { return !auto_ && state_.device_train_microbatch_size == 0; }
  void set_metrics(MetricSet metrics) { metrics_ = std::move(metrics); }
  // Until the fit ends, batches are trained by a graph where that can be.
  void use_graph(const Engine& engine);
  void end_fit();

  void start(const Feed& feed);  // state.batch is the whole batch
  // One step of the optimizer with the gradients that `train_batch` makes, which it may call several times: because the
  // optimizer wants so, or because memory was short and the size of microbatches is "auto".
  void step_optimizer(const Feed& feed, const TrainBatch& train_batch);
  void zero_gradients();
  std::size_t num_microbatches() const { return microbatches_.size(); }
  void enter(const Feed& feed, std::size_t microbatch);  // state.batch becomes that one, on the device
  void forward();
  void loss();
  void backward();
  void update_metrics();
  void leave();  // state.batch is the whole batch again, state.batch_loss what it has cost; gradients are final
  void forget_batch();
  void abandon();  // an error came between start() and leave(): state.batch becomes the whole batch
  void visit_state(StateVisitor& visit);
  void log();  // what the batch has shown, at the step before it is counted
  void report_metrics() { metrics_.report(state_, logger_, /*keep_if_empty=*/true); }

 private:
  void split(const Feed& feed);
  void step_once(const TrainBatch& train_batch);
  void choose_microbatch_size(const Feed& feed);
  void try_microbatches(const Feed& feed, std::int64_t size);
  void take_back(BatchUndo& undo);
  void run_forward();
  void run_loss();
  at::Tensor total_loss() const;
  void differentiate(const at::Tensor& total);
  double weight_of(const Feed& feed, const Batch& batch) const;
  void add_to_batch_loss(std::string_view name, const at::Tensor& mean);

  State& state_;
  Logger& logger_;
  bool weigh_by_tokens_;
  MetricSet metrics_;
  std::optional<optim::GradScaler> scaler_;
  bool scales_ = false;                             // in this fit
  std::pair<at::Tensor, at::Tensor> loaded_scale_;  // of a checkpoint, until a fit scales
  std::optional<AutoMicrobatch> auto_;
  std::optional<StepGraph> graph_;
  Batch whole_;  // as it came from the loader
  std::vector<Batch> microbatches_;
  std::int64_t microbatch_size_ = 0;    // as logged: that of the loader's batches, if none was asked for
  double weight_ = 0;                   // of all microbatches, before their transforms
  double share_ = 1;                    // of the current microbatch in it
  bool first_ = true;                   // of the microbatches
  Batch before_algorithms_;             // the microbatch that metrics see
  std::vector<std::string> loss_keys_;  // beside state.batch_loss
  std::vector<LogEntry> entries_;       // kept for its capacity
};

}  // namespace composer
