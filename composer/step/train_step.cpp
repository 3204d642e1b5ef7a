#include "composer/step/train_step.h"

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/state_dict.h"
#include "composer/step/batch_undo.h"
#include "composer/step/precision.h"

namespace composer {
namespace {

at::Tensor mean_of(const at::Tensor& loss) { return loss.dim() == 0 ? loss : loss.mean(); }

}  // namespace

double TrainStep::weight_of(const Feed& feed, const Batch& batch) const {
  return static_cast<double>(weigh_by_tokens_ ? feed.count_tokens(batch).loss_generating : feed.count_samples(batch));
}

void TrainStep::scale_losses(Precision precision, const std::optional<optim::GradScalerOptions>& scaling) {
  const bool scales = scaling || precision == Precision::AMP_FP16;
  if (scales) optim::require_skippable(*state_.optimizer, scaling ? "grad_scaler" : "precision: amp_fp16");
  if (scales && !scaler_) scaler_.emplace(scaling.value_or(optim::GradScalerOptions{}), state_.device);
  if (const auto [scale, growth] = std::exchange(loaded_scale_, {}); scaler_ && scale.defined())
    scaler_->load(scale, growth);
  scales_ = scales;
}

void TrainStep::set_microbatch_size(MicrobatchSize size, std::int64_t bytes) {
  state_.device_train_microbatch_size = size.samples();
  auto_.reset();
  if (size.is_auto()) auto_.emplace(state_, bytes);
}

void TrainStep::start(const Feed& feed) {
  whole_ = state_.batch;
  if (auto_ && !auto_->has_size()) choose_microbatch_size(feed);
  split(feed);
}

void TrainStep::split(const Feed& feed) {
  metrics_.reset();
  microbatches_ = feed.split(whole_, state_.device_train_microbatch_size);
  microbatch_size_ = state_.device_train_microbatch_size;
  if (microbatch_size_ == 0) microbatch_size_ = feed.batch_size().value_or(feed.samples());
}

void TrainStep::step_once(const TrainBatch& train_batch) {
  if (!scales_) {
    state_.optimizer->step(train_batch);
    return;
  }
  {
    const at::AutoGradMode enable_grad(true);  // as step() does for its closure
    train_batch();
  }
  scaler_->step(*state_.optimizer);
  scaler_->update();
}

void TrainStep::step_optimizer(const Feed& feed, const TrainBatch& train_batch) {
  if (!auto_) return step_once(train_batch);
  BatchUndo undo(state_);
  while (true) {
    bool has_gradients = false;  // then the weights may have changed: there is no way back
    try {
      return step_once([&] {
        const MemoryScope scope(state_.device, auto_->limit());
        at::Tensor loss = train_batch();
        has_gradients = true;
        return loss;
      });
    } catch (...) {
      if (has_gradients || !is_out_of_memory(std::current_exception())) throw;
      auto_->shrink(feed.samples());
    }
    take_back(undo);
    split(feed);
  }
}

// Leaves no trace: random numbers, buffers and gradients are as they were.
void TrainStep::choose_microbatch_size(const Feed& feed) {
  BatchUndo undo(state_);
  const Losses batch_loss = state_.batch_loss;
  take_back(undo);
  auto_->choose(feed.samples(), [&](std::int64_t size) {
    take_back(undo);
    try_microbatches(feed, size);
  });
  take_back(undo);
  state_.batch_loss = batch_loss;
}

// Two, because the second adds its gradients to those of the first.
void TrainStep::try_microbatches(const Feed& feed, std::int64_t size) {
  const at::AutoGradMode enable_grad(true);
  const Batch part = feed.split(whole_, size).front();
  first_ = true;
  share_ = 0.5;
  for (int i = 0; i < 2; ++i) {
    state_.batch = part;
    feed.to_device(state_.batch, state_.device);
    forward();
    loss();
    backward();
  }
}

// What an attempt to train the batch has left, whether it came to its end or not.
void TrainStep::take_back(BatchUndo& undo) {
  state_.optimizer->zero_grad(/*set_to_none=*/true);
  state_.outputs.clear();
  state_.loss.clear();
  before_algorithms_.clear();
  state_.batch = whole_;
  undo.restore();
  release_cached_memory(state_.device);
}

void TrainStep::zero_gradients() {
  state_.optimizer->zero_grad(/*set_to_none=*/true);
  first_ = true;
}

void TrainStep::enter(const Feed& feed, std::size_t microbatch) {
  if (microbatch == 0) {
    weight_ = 0;
    for (const Batch& part : microbatches_) weight_ += weight_of(feed, part);
    if (!(weight_ > 0))
      throw DataError("the batch has no ", weigh_by_tokens_ ? "loss-generating tokens" : "samples", " to weigh it by");
  }
  state_.batch = microbatches_[microbatch];  // a copy: the optimizer may run the batch again
  feed.to_device(state_.batch, state_.device);
  share_ = weight_of(feed, state_.batch) / weight_;
  if (!metrics_.empty()) before_algorithms_ = state_.batch;
}

void TrainStep::use_graph(const Engine& engine) {
  if (!graph_) graph_.emplace(state_);
  graph_->start(engine, trains_whole_batches());
}

void TrainStep::end_fit() {
  if (graph_) graph_->stop();
}

void TrainStep::forward() {
  const auto all = [this] {
    run_forward();
    run_loss();
    differentiate(total_loss());
  };
  if (graph_ && share_ == 1 && graph_->run(all)) return;
  run_forward();
}

void TrainStep::run_forward() {
  const AutocastScope autocast(state_.precision, state_.device);
  state_.outputs = state_.model->forward(state_.batch);
}

void TrainStep::loss() {
  if (!graph_ || !graph_->take_loss()) run_loss();
}

void TrainStep::run_loss() {
  const AutocastScope autocast(state_.precision, state_.device);
  state_.loss = state_.model->loss(state_.outputs, state_.batch);
  if (state_.loss.empty()) throw ConfigError("Model::loss gave no loss");
}

at::Tensor TrainStep::total_loss() const {
  if (const at::Tensor* given = state_.loss.find("total")) return mean_of(*given);
  at::Tensor total;
  for (const auto& [name, loss] : state_.loss) total = total.defined() ? total + mean_of(loss) : mean_of(loss);
  return total;
}

void TrainStep::backward() {
  const at::Tensor total = total_loss();
  if (first_) state_.batch_loss.clear();
  add_to_batch_loss("total", total);
  for (const auto& [name, loss] : state_.loss)
    if (name != "total") add_to_batch_loss(name, mean_of(loss));
  first_ = false;
  if (!graph_ || !graph_->take_gradients()) differentiate(total);
}

void TrainStep::differentiate(const at::Tensor& total) {
  const at::Tensor weighted = share_ == 1 ? total : total * share_;
  (scales_ ? scaler_->scale(weighted) : weighted).backward();
}

void TrainStep::add_to_batch_loss(std::string_view name, const at::Tensor& mean) {
  const at::Tensor value = mean.variable_data();  // as detach(), without a view to keep track of
  const at::Tensor part = share_ == 1 ? value : value * share_;
  const at::Tensor* sum = state_.batch_loss.find(name);
  state_.batch_loss.set(name, sum ? *sum + part : part);
}

void TrainStep::update_metrics() {
  if (metrics_.empty()) return;
  const at::NoGradGuard no_grad;
  const AutocastScope autocast(state_.precision, state_.device);
  metrics_.update(*state_.model, before_algorithms_, state_.model->eval_forward(before_algorithms_, &state_.outputs));
}

void TrainStep::leave() {
  state_.batch = whole_;
  if (scales_) scaler_->unscale(*state_.optimizer);
}

void TrainStep::abandon() { state_.batch = whole_; }

void TrainStep::forget_batch() {
  whole_.clear();
  microbatches_.clear();
  before_algorithms_.clear();
}

void TrainStep::visit_state(StateVisitor& visit) {
  if (auto_ && (!visit.is_loading() || visit.has("device_train_microbatch_size")))
    visit("device_train_microbatch_size", state_.device_train_microbatch_size);
  if (visit.is_loading() ? !visit.has("scaler") : !scaler_) return;
  StateVisitor inner = visit.scope("scaler");
  at::Tensor scale = scaler_ ? scaler_->scale_factor() : at::Tensor(),
             growth = scaler_ ? scaler_->growth_tracker() : at::Tensor();
  inner("scale", scale);
  inner("growth_tracker", growth);
  if (visit.is_loading()) loaded_scale_ = {scale, growth};
}

void TrainStep::log() {
  if (logger_.empty()) return;
  entries_.clear();
  entries_.push_back({"trainer/device_train_microbatch_size", microbatch_size_});
  constexpr std::string_view kPrefix = "loss/train/";
  loss_keys_.resize(state_.batch_loss.size());
  for (std::size_t i = 0; const auto& [name, loss] : state_.batch_loss) {
    std::string& key = loss_keys_[i++];
    if (key.empty() || std::string_view(key).substr(kPrefix.size()) != name) key = join(kPrefix, name);
  }
  for (std::size_t i = 0; const auto& [name, loss] : state_.batch_loss) entries_.push_back({loss_keys_[i++], loss});
  logger_.log_metrics(entries_);
}

}  // namespace composer
