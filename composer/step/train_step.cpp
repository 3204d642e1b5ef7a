#include "composer/step/train_step.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>
#include <torch/optim/optimizer.h>

#include "composer/core/divided_gradients.h"
#include "composer/core/engine.h"
#include "composer/core/state_dict.h"
#include "composer/step/outside_leaves.h"

namespace composer {

void TrainStep::scale_losses(Precision precision, const std::optional<optim::GradScalerOptions>& scaling) {
  scaling_.use(precision, scaling);
  losses_.expect_nan(scaling_.is_on());
}

void TrainStep::set_microbatch_size(MicrobatchSize size, std::int64_t bytes) {
  state_.device_train_microbatch_size = size.samples();
  auto_.reset();
  if (!size.is_auto()) return;
  auto_.emplace(state_, bytes, [this] {
    metrics_.forget_microbatch();
    abandon();
  });
}

void TrainStep::begin_fit(const Engine& engine, bool recorded) {
  microbatches_.begin_fit();
  passes_.use_rule(engine);
  for (const auto& algorithm : engine.algorithms())
    if (auto* const knows = algorithm.interfaces.divided_gradients) knows->use_sum(ranks_->sum_of_divided());
  if (!recorded) return;
  graph_.start(engine, !auto_ && state_.device_train_microbatch_size == 0);
  computation_ = &graph_;
}

void TrainStep::end_fit() {
  graph_.stop();
  computation_ = &eager_;
}

void TrainStep::start(const Feed& feed, Seconds spent) {
  microbatches_.take_batch();
  if (auto_) choose_microbatch_size(feed);
  microbatches_.split(feed, *ranks_);
  if (!ranks_->alone()) microbatches_.weigh(feed, *ranks_, spent);  // also on a rank without samples
}

void TrainStep::step_optimizer(const Feed& feed, const TrainBatch& train_batch) {
  const auto changed = c10::make_scope_exit([this] { state_.metrics.weights_changed(); });  // also after half a step
  const auto gradients = [&] { return passes_.make(train_batch); };
  const auto step = [this](const AutoMicrobatch::Gradients& make) {
    scaling_.step([&] {
      at::Tensor loss = make();
      ranks_->before_step();
      return loss;
    });
    ranks_->after_step();
  };
  if (!auto_) return step(gradients);
  std::function<void()> split;
  if (ranks_->alone()) split = [&] { microbatches_.split(feed, *ranks_); };
  auto_->fit(step, gradients, split);
}

// Begins the batch again. An optimizer may run its closure several times, and metrics count the last run.
void TrainStep::zero_gradients() {
  state_.optimizer->zero_grad(/*set_to_none=*/true);
  if (!passes_.have_shown()) metrics_.begin_batch();
}

void TrainStep::enter(const Feed& feed, std::size_t microbatch) {
  microbatches_.enter(feed, *ranks_, microbatch);
  metrics_.keep_microbatch();
}

void TrainStep::forward() {
  if (losses_.stops_if_nan()) repeat_.keep_random();
  ranks_->before_forward(microbatches_.is_last());
  computation_->forward(microbatches_.share());
}

void TrainStep::loss() {
  const std::uint64_t runs = microbatches_.runs_of_loss();
  computation_->loss();
  if (!computation_->is_ahead()) microbatches_.weigh_loss(runs);
  microbatches_.zero_loss_without_weight();
}

void TrainStep::warn_of_outside_leaves() const { composer::warn_of_outside_leaves(state_, microbatches_.whole()); }

void TrainStep::backward() {
  microbatches_.zero_loss_without_weight();  // an algorithm may have computed the loss again
  const at::Tensor total = total_of(state_.loss);
  if (!passes_.have_shown()) {
    losses_.stop_if_nan(total);
    if (microbatches_.is_first()) state_.batch_loss.clear();
    losses_.add(total, microbatches_.share());
  }
  if (microbatches_.counts()) {
    ranks_->before_backward(total, microbatches_.is_last());
    computation_->backward(total, ranks_->share_of_gradient(microbatches_.share()));
    ranks_->after_backward(microbatches_.is_last());
  }
  ranks_->leave_shard(state_.batch_loss);
}

void TrainStep::update_metrics() {
  if (!passes_.have_shown()) metrics_.update();
}

void TrainStep::leave() {
  microbatches_.leave();
  if (microbatches_.size() == 0 && !passes_.have_shown()) state_.batch_loss.clear();
  ranks_->finish(passes_.have_shown() ? nullptr : &state_.batch_loss);
  if (scaling_.is_on()) ranks_->agree_on_overflow(scaling_.unscale());
}

void TrainStep::log() {
  means_.begin_batch(state_.timestamp, microbatches_.of_all_ranks().samples);
  means_.add(losses_.log(microbatches_.samples_at_once()));
  const std::span<const LogEntry> metrics = metrics_.report(ranks_->world());
  if (!logger_.empty()) means_.add(metrics);
}

void TrainStep::log_epoch() {
  metrics_.report(ranks_->world());
  means_.log(state_.timestamp, logger_);
  losses_.stop_if_last_is_nan();
}

void TrainStep::repeat(bool backward) { repeat_.run(backward, ranks_->share_of_gradient(microbatches_.share())); }

void TrainStep::forget_batch() {
  microbatches_.forget();
  metrics_.forget_microbatch();
}

void TrainStep::visit_state(StateVisitor& visit) {
  if (auto_ && (!visit.is_loading() || visit.has("device_train_microbatch_size")))
    visit("device_train_microbatch_size", state_.device_train_microbatch_size);
  scaling_.visit_state(visit);
  // Within an epoch only.
  if (visit.is_loading() ? !visit.has("epoch_means") : means_.is_empty()) return means_.clear();
  visit("epoch_means", means_);
}

void TrainStep::choose_microbatch_size(const Feed& feed) {
  // Algorithms may have changed the number of samples.
  auto_->begin_batch(feed.rules().count_samples(microbatches_.whole()));
  if (auto_->has_size()) return;
  auto_->choose([&](std::int64_t size) { try_microbatches(feed, size); });
  state_.device_train_microbatch_size = ranks_->smallest(state_.device_train_microbatch_size);
}

// Tries two microbatches, because the second adds its gradients to those of the first.
void TrainStep::try_microbatches(const Feed& feed, std::int64_t size) {
  const at::AutoGradMode enable_grad(true);
  const JoinedRanks::ThisRankOnly this_rank_only(ranks_);
  const Batch part = feed.rules().split(microbatches_.whole(), size).front();
  for (const bool first : {true, false}) {
    microbatches_.enter_trial(feed, part, first);
    metrics_.keep_microbatch();
    forward();
    loss();
    backward();
  }
}

}  // namespace composer
