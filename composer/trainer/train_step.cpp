#include "composer/trainer/train_step.h"

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/trainer/precision.h"

namespace composer {

double TrainStep::weight_of(const Feed& feed, const Batch& batch) const {
  return static_cast<double>(weigh_by_tokens_ ? feed.count_tokens(batch).loss_generating : feed.count_samples(batch));
}

void TrainStep::start(const Feed& feed) {
  metrics_.reset();
  whole_ = state_.batch;
  microbatches_ = feed.split(whole_, state_.device_train_microbatch_size);
  microbatch_size_ = state_.device_train_microbatch_size;
  if (microbatch_size_ == 0) microbatch_size_ = feed.batch_size().value_or(feed.samples());
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

void TrainStep::forward() {
  const AutocastScope autocast(state_.precision, state_.device);
  state_.outputs = state_.model->forward(state_.batch);
}

void TrainStep::eval_forward() {
  const AutocastScope autocast(state_.precision, state_.device);
  state_.outputs = state_.model->eval_forward(state_.batch, nullptr);
}

void TrainStep::loss() {
  const AutocastScope autocast(state_.precision, state_.device);
  state_.loss = state_.model->loss(state_.outputs, state_.batch);
  if (state_.loss.empty()) throw ConfigError("Model::loss gave no loss");
}

void TrainStep::backward() {
  const auto mean = [](const at::Tensor& loss) { return loss.dim() == 0 ? loss : loss.mean(); };
  at::Tensor total;
  if (const at::Tensor* given = state_.loss.find("total")) {
    total = mean(*given);
  } else {
    for (const auto& [name, loss] : state_.loss) total = total.defined() ? total + mean(loss) : mean(loss);
  }
  if (first_) state_.batch_loss.clear();
  add_to_batch_loss("total", total);
  for (const auto& [name, loss] : state_.loss)
    if (name != "total") add_to_batch_loss(name, mean(loss));
  first_ = false;
  (share_ == 1 ? total : total * share_).backward();
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

void TrainStep::leave() { state_.batch = whole_; }

void TrainStep::forget_batch() {
  whole_.clear();
  microbatches_.clear();
  before_algorithms_.clear();
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
