#include "composer/step/train_step.h"

#include <algorithm>
#include <string_view>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <torch/optim/optimizer.h>

#include "composer/core/divided_gradients.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/state_dict.h"
#include "composer/dist/world.h"
#include "composer/optim/named_optimizer.h"
#include "composer/step/batch_undo.h"
#include "composer/step/memory.h"
#include "composer/util/out_of_memory.h"

namespace composer {
namespace {

// Makes `to` a copy of `from`. Nearly always it is one already, which is cheaper to see than to copy.
void assign(Batch& to, const Batch& from) {
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first && a.second.is_same(b.second); };
  if (!std::ranges::equal(to, from, same)) to = from;
}

}  // namespace

void TrainStep::set_microbatch_size(MicrobatchSize size, std::int64_t bytes) {
  state_.device_train_microbatch_size = size.samples();
  auto_.reset();
  if (size.is_auto()) auto_.emplace(state_, bytes);
}

void TrainStep::start(const Feed& feed, Seconds spent) {
  whole_ = state_.batch;
  spent_ = spent;
  of_all_.seconds = 0;
  if (auto_) samples_ = feed.count_samples(whole_);  // algorithms may have changed it
  if (auto_ && !auto_->has_size()) {
    if (samples_ > 0) choose_microbatch_size(feed);
    if (ranks()) state_.device_train_microbatch_size = ranks()->smallest(state_.device_train_microbatch_size);
  }
  split(feed);
  if (ranks()) weigh(feed);
}

// Of a batch that is not split, as far as it is known: on all ranks the largest slice.
std::int64_t TrainStep::samples_at_once(const Feed& feed) const {
  const std::optional<std::int64_t> whole = feed.batch_size();
  const std::optional<std::int64_t> own = feed.loader() ? feed.loader()->batch_size() : std::nullopt;
  if (!ranks() || !whole || !own || *own == *whole) return whole.value_or(feed.samples());
  return (*whole + state_.world_size - 1) / state_.world_size;
}

void TrainStep::split(const Feed& feed) {
  const std::int64_t size = state_.device_train_microbatch_size;
  weight_ = {};
  is_split_ = size != 0;
  if (ranks() && ranks()->has_shards()) {
    split_into_shards(feed);
  } else if (ranks() && feed.count_samples(whole_) == 0) {  // nothing is trained on this rank
    microbatches_.clear();
  } else if (is_split_) {
    microbatches_.clear();
    for (Batch& part : feed.split(whole_, size))
      microbatches_.push_back({.batch = std::move(part), .first = microbatches_.empty()});
  } else {
    microbatches_.assign(1, {});
  }
  microbatch_size_ = size == 0 ? samples_at_once(feed) : size;
}

// Each adds its losses to nothing, because the sum over shards has an order of its own.
void TrainStep::split_into_shards(const Feed& feed) {
  is_split_ = true;
  microbatches_.clear();
  std::int64_t from = 0;
  for (const auto& [index, samples] : ranks()->shards(feed.count_samples(whole_))) {
    Batch part = whole_;
    for (auto& [name, tensor] : part)
      if (tensor.dim() > 0) tensor = tensor.slice(0, from, from + samples);
    microbatches_.push_back({.batch = std::move(part), .first = true, .shard = index});
    from += samples;
  }
}

// Once, however often the batch is trained.
void TrainStep::weigh(const Feed& feed) {
  const bool alone = microbatches_.size() == 1 && !ranks();
  bool may_change = ranks() && feed.has_microbatch_transforms();
  weight_ = 0;
  counted_ = 0;
  for (std::size_t i = 0; i < microbatches_.size(); ++i) {
    const Batch& batch = batch_of(microbatches_[i]);
    LossWeight& weight = microbatches_[i].weight;
    weight = part_weights_.of(feed, batch, alone);
    weight_ = weight_ + weight;
    microbatches_[i].counted = part_weights_.counted_instead(feed, batch, weight);
    counted_ += microbatches_[i].counted;
    if (weight.is(0))
      may_change = true;
    else
      last_ = i;
  }
  if (ranks()) {
    const double seconds = of_all_.seconds;  // a batch may be weighed twice
    of_all_ = ranks()->start({.weight = weight_,
                              .counted = counted_,
                              .samples = feed.samples(),
                              .tokens = feed.tokens_left(whole_),
                              .microbatches = static_cast<std::int64_t>(microbatches_.size()),
                              .seconds = std::exchange(spent_, {}).count()},
                             may_change);
    of_all_.seconds += seconds;
    weight_ = of_all_.weight;
    counted_ = of_all_.counted;
  }
  part_weights_.check(weight_, whole_, !microbatches_.empty(), alone, tokens(feed));
}

void TrainStep::step_once(const std::function<at::Tensor()>& closure) {
  OptimizerShards* const shards = ranks() ? optimizer_shards() : nullptr;
  const auto make_own = [&] {
    at::Tensor loss = closure();
    if (shards) shards->before_step();
    return loss;
  };
  scaling_.step(make_own);
  if (shards) shards->after_step();
}

void TrainStep::step_optimizer(const Feed& feed, const TrainBatch& train_batch) {
  const auto changed = c10::make_scope_exit([this] { state_.metrics.weights_changed(); });  // also by half a step
  if (!auto_) return step_once([&] { return make_gradients(train_batch); });
  BatchUndo undo(state_);
  while (true) {
    bool has_gradients = false;  // then the weights may have changed: there is no way back
    try {
      return step_once([&] {
        std::optional<MemoryScope> scope;
        if (state_.device.is_cpu()) scope.emplace(state_.device, auto_->limit());
        at::Tensor loss = make_gradients(train_batch);
        has_gradients = true;
        return loss;
      });
    } catch (...) {
      // Other ranks are waiting for the gradients of this one, which cannot begin anew.
      if (has_gradients || ranks() || !is_out_of_memory(std::current_exception())) throw;
      auto_->shrink(samples_);
    }
    take_back(undo);
    split(feed);
  }
}

// Leaves the gradients of the batch, and what it shows at these weights.
void TrainStep::rehearse(const TrainBatch& train_batch) {
  BatchUndo undo(state_);
  train_batch(/*counts=*/false);
  state_.outputs.clear();
  state_.loss.clear();
  undo.restore();
}

// Leaves no trace: random numbers, buffers and gradients are as they were.
void TrainStep::choose_microbatch_size(const Feed& feed) {
  BatchUndo undo(state_);
  const Losses batch_loss = state_.batch_loss;
  take_back(undo);
  auto_->choose(samples_, [&](std::int64_t size) {
    take_back(undo);
    try_microbatches(feed, size);
  });
  take_back(undo);
  state_.batch_loss = batch_loss;
}

// Two, because the second adds its gradients to those of the first.
void TrainStep::try_microbatches(const Feed& feed, std::int64_t size) {
  const at::AutoGradMode enable_grad(true);
  const Apart apart(*this);
  const Batch part = feed.split(whole_, size).front();
  for (const bool first : {true, false}) {
    enter(feed, part, first);
    current_.weight = {};
    share_ = 0.5;
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
  metrics_.forget_microbatch();
  state_.batch = whole_;
  undo.restore();
  release_cached_memory(state_.device);
}

at::Tensor TrainStep::make_gradients(const TrainBatch& train_batch) try {
  measured_ = false;
  if (!rule_) return train_batch(/*counts=*/true);
  at::Tensor loss;
  bool passing = false;  // an error is the model's, not the rule's
  const auto pass = [&](bool counts) {
    if (loss.defined()) throw ConfigError(rule_name_, "::make_gradients: a pass after the one that counts");
    passing = true;
    if (counts)
      loss = train_batch(/*counts=*/true);
    else
      rehearse(train_batch);
    passing = false;
    measured_ = true;
  };
  try {
    rule_->make_gradients(state_, pass);
  } catch (...) {
    if (passing || is_out_of_memory(std::current_exception())) throw;
    throw_nested<RunError>(rule_name_, " failed in make_gradients, epoch ", state_.timestamp.epoch, ", batch ",
                           state_.timestamp.batch);
  }
  if (!loss.defined()) throw ConfigError(rule_name_, "::make_gradients: no pass that counts");
  return loss;
} catch (const c10::Error& error) {
  if (std::string_view(error.what_without_backtrace()).find("nference tensor") == std::string_view::npos) throw;
  throw_nested<ConfigError>("inference_mode: the model trains on a tensor that it made while it evaluated or ",
                            "predicted, which libtorch's inference mode forbids; set inference_mode = false, or make ",
                            "the tensor in the model's constructor");
}

std::vector<std::int64_t> TrainStep::sample_indices(const Feed& feed) const {
  std::vector<std::int64_t> all = feed.sample_indices();
  if (all.empty()) return all;
  if (!is_split_) {
    if (feed.count_samples(whole_) != static_cast<std::int64_t>(all.size())) all.clear();  // an algorithm has selected
    return all;
  }
  std::int64_t from = 0, sum = 0;
  for (std::size_t i = 0; i < microbatches_.size(); ++i) {
    if (i == index_) from = sum;
    sum += feed.count_samples(microbatches_[i].batch);
  }
  if (sum != static_cast<std::int64_t>(all.size())) return {};
  const std::int64_t count = feed.count_samples(microbatches_[index_].batch);
  return {all.begin() + from, all.begin() + from + count};
}

// The batch begins anew: an optimizer may run its closure several times, and metrics count the last.
void TrainStep::zero_gradients() {
  state_.optimizer->zero_grad(/*set_to_none=*/true);
  if (!measured_) metrics_.begin_batch();
}

void TrainStep::enter(const Feed& feed, std::size_t index) {
  if (!weight_.known()) weigh(feed);
  const Microbatch& microbatch = microbatches_[index];
  index_ = index;
  if (ranks() && ranks()->has_shards()) ranks()->enter_shard(microbatch.shard);
  enter(feed, batch_of(microbatch), microbatch.first);
  current_.weight = microbatch.weight;
  current_.counted = microbatch.counted;
  if (feed.has_microbatch_transforms()) {
    current_.weight = part_weights_.of_transformed(feed, state_.batch, microbatch.weight);
    current_.counted = part_weights_.counted_instead(feed, state_.batch, microbatch.weight);
  }
  share_ = current_.weight / weight_;
}

void TrainStep::enter(const Feed& feed, const Batch& batch, bool first) {
  assign(state_.batch, batch);  // a copy: the optimizer may run the batch again
  feed.to_device(state_.batch, state_.device);
  metrics_.keep_microbatch();
  current_.first = first;
}

void TrainStep::use_rule(const Engine& engine) {
  rule_ = nullptr;
  for (const auto& algorithm : engine.algorithms()) {
    StepRule* rule = algorithm.object->step_rule();
    if (!rule) continue;
    if (rule_)
      throw ConfigError("algorithms: ", rule_name_, " and ", algorithm.name, " both make the gradients of a step");
    rule_ = rule;
    rule_name_ = algorithm.name;
  }
  const auto* ours = dynamic_cast<const optim::NamedOptimizer*>(&*state_.optimizer);
  if (rule_ && ours && ours->steps_in_backward())
    throw ConfigError("optimizer: step_in_backward does not go with ", rule_name_,
                      ", which needs all gradients of a step");
  for (const auto& algorithm : engine.algorithms()) {
    auto* const knows = algorithm.interfaces.divided_gradients;
    if (!knows) continue;
    DividedGradients::SumOverRanks sum;
    if (divides_gradients()) sum = [world = ranks()->world()](const at::Tensor& tensor) { world->sum(tensor); };
    knows->use_sum(std::move(sum));
  }
}

void TrainStep::check_divides(const Engine& engine) const {
  if (!divides_gradients()) return;
  for (const auto& algorithm : engine.algorithms()) {
    if (algorithm.object->step_rule())
      throw ConfigError("distributed.zero_stage: 2 does not go with ", algorithm.name,
                        ", which needs the gradients of all parameters on each rank; set zero_stage = 1");
    if (algorithm.events.contains(Event::AFTER_TRAIN_BATCH) && !algorithm.interfaces.divided_gradients)
      throw ConfigError("distributed.zero_stage: 2 leaves each rank the gradients of its own parameters, and ",
                        algorithm.name, " runs at AFTER_TRAIN_BATCH but is not a DividedGradients; set zero_stage = 1");
  }
}

void TrainStep::use_graph(const Engine& engine) {
  graph_.start(engine, trains_whole_batches());
  computation_ = &graph_;
}

void TrainStep::end_fit() {
  graph_.stop();
  computation_ = &eager_;
}

void TrainStep::forward() {
  if (ranks()) ranks()->before_forward(is_last());
  computation_->forward(share_);
}

void TrainStep::loss() {
  const std::uint64_t runs = current_.weight.runs();
  computation_->loss();
  if (!computation_->is_ahead()) {
    if (current_.weight.depends_on_loss()) weigh_loss(/*told=*/current_.weight.runs() != runs);
    if (current_.weight.depends_on_kind()) share_ = part_weights_.of_loss(state_.batch, current_.weight) / weight_;
    stop_gradients_of_nothing();
  }
  lose_loss();
}

// `told`: by the loss that the model has told the weight of.
void TrainStep::weigh_loss(bool told) {
  part_weights_.check_loss(told, current_.weight, weight_, whole_, microbatches_.size() == 1 && !ranks());
  if (told) return;
  current_.weight = current_.counted;
  share_ = current_.weight / LossWeight(counted_);
}

// On a device nobody looks whether a part has weight, and the gradient of a mean over nothing is NaN.
void TrainStep::stop_gradients_of_nothing() {
  if (!share_.is_on_device()) return;
  for (const auto& [name, output] : state_.outputs)
    if (output.defined() && output.requires_grad() && !output.is_leaf())
      output.register_hook([share = share_](const at::Tensor& gradient) { return share.value_or_zero(gradient); });
}

// Of a part without weight: a mean over nothing may be 0/0.
void TrainStep::lose_loss() {
  if (counts() && !share_.is_on_device()) return;
  for (auto& [name, loss] : state_.loss) loss = share_.value_or_zero(loss);
}

void TrainStep::backward() {
  lose_loss();  // an algorithm may have computed it anew
  const at::Tensor total = total_of(state_.loss);
  if (current_.first && !measured_) state_.batch_loss.clear();
  if (!measured_) losses_.add(total, share_);
  if (counts()) {
    if (ranks()) ranks()->before_backward(total, is_last());
    computation_->backward(total, share_of_gradient());
    if (ranks()) ranks()->after_backward(is_last());
  }
  if (ranks() && ranks()->has_shards()) ranks()->leave_shard(microbatches_[index_].shard, state_.batch_loss);
}

void TrainStep::leave() {
  assign(state_.batch, whole_);
  part_weights_.warn_of_nothing();
  if (ranks()) {
    if (microbatches_.empty() && !measured_) state_.batch_loss.clear();
    ranks()->finish(measured_ ? nullptr : &state_.batch_loss);
  }
  if (!scaling_.is_on()) return;
  const at::Tensor& found_inf = scaling_.unscale();
  if (ranks() && divides_gradients()) ranks()->world()->max(found_inf);
}

void TrainStep::repeat(bool backward) { repeat_.run(backward, share_of_gradient()); }

void TrainStep::abandon() { state_.batch = whole_; }

void TrainStep::forget_batch() {
  whole_.clear();
  for (Microbatch& microbatch : microbatches_) microbatch.batch.clear();
  metrics_.forget_microbatch();
}

void TrainStep::visit_state(StateVisitor& visit) {
  if (auto_ && (!visit.is_loading() || visit.has("device_train_microbatch_size")))
    visit("device_train_microbatch_size", state_.device_train_microbatch_size);
  scaling_.visit_state(visit);
}

}  // namespace composer
