#include "composer/step/gradient_sync.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/dist/agreement.h"
#include "composer/dist/average.h"
#include "composer/dist/data_parallel.h"
#include "composer/dist/world.h"
#include "composer/step/trained_parameters.h"

namespace composer {

GradientSync::GradientSync(State& state, std::shared_ptr<dist::World> world, const dist::DistributedOptions& options)
    : state_(state), world_(std::move(world)), options_(options), size_(world_->size()) {
  if (options.virtual_shards > 0) shards_.emplace(state, world_, options.virtual_shards);
  if (options.zero_stage > 0 && size_ > 1) optimizer_.emplace(state, world_, options);
}

GradientSync::~GradientSync() = default;

std::optional<std::vector<BatchRanks::Shard>> GradientSync::shards(const Feed& feed, const Batch& batch) const {
  const std::int64_t samples = feed.count_samples(batch);
  std::vector<Shard> shards;
  if (!shards_) return samples == 0 ? std::optional(shards) : std::nullopt;  // without any, nothing is trained here
  for (std::int64_t index = shards_->first(); const std::int64_t size : shards_->sizes(samples)) {
    if (size > 0) shards.push_back({index, size});
    ++index;
  }
  return shards;
}

// Ranks are averaged, shards are added up.
LossWeight GradientSync::share_of_gradient(const LossWeight& share) const { return share * (shards_ ? 1 : size_); }

void GradientSync::enter_shard(std::int64_t index) {
  if (shards_) shards_->enter(index);
}

void GradientSync::leave_shard(const Losses& losses) {
  if (shards_) shard_losses_.emplace_back(shards_->leave(), losses);
}

// One message for all that ranks must know of each other before they train a batch.
BatchCounts GradientSync::start(const BatchCounts& own, bool may_change) {
  const auto count = static_cast<double>(own.microbatches);
  const bool trains = is_training(as_module(*state_.model));
  const at::Tensor sums = at::tensor(
      {own.weight.number(), static_cast<double>(own.samples), static_cast<double>(own.tokens), count, count * count,
       own.weight.is(0) ? 1.0 : 0.0, may_change ? 1.0 : 0.0, own.seconds, has_other_losses_ ? 1.0 : 0.0,
       own.weight.is_on_device() ? 1.0 : 0.0, own.counted, size_ > 1 && has_changed() ? 1.0 : 0.0, trains ? 0.0 : 1.0},
      at::kDouble);
  world_->sum(sums);
  const double* sum = sums.const_data_ptr<double>();
  agrees_on_losses_ = agrees_on_losses_ && sum[8] == 0;
  if (sum[11] > 0) share_new();
  if (sum[12] > 0 && sum[12] < size_) check_model({trains ? "training mode" : "evaluation mode"});
  const bool differ = sum[4] * size_ != sum[3] * sum[3];
  // The Reducer wants one backward pass of each rank, or as many of each.
  by_hand_ = divides_gradients() || options_.ddp_sync_strategy == dist::SyncStrategy::FORCED_SYNC || sum[5] > 0 || sum[6] > 0 ||
             (differ && options_.ddp_sync_strategy == dist::SyncStrategy::MULTI_AUTO_SYNC);
  if (shards_) {
    shards_->forget();
    shard_losses_.clear();
  } else if (by_hand_ && options_.broadcast_buffers) {
    share_buffers();
  }
  LossWeight weight = sum[0];
  if (sum[9] > 0) {  // it is not waited for: the sum is made where the weights are
    const at::Tensor all = own.weight.on(state_.device);
    world_->sum(all);
    weight = all;
  }
  return {.weight = weight,
          .counted = sum[10],
          .samples = std::llround(sum[1]),
          .tokens = std::llround(sum[2]),
          .microbatches = std::llround(sum[3]),
          .seconds = sum[7] / size_};
}

bool GradientSync::syncs(bool last) const {
  return !by_hand_ && !shards_ && (last || options_.ddp_sync_strategy == dist::SyncStrategy::MULTI_AUTO_SYNC);
}

void GradientSync::before_forward(bool last) {
  if (!syncs(last)) return;
  const std::vector<at::Tensor> trained = trained_tensors(as_module(*state_.model));
  if (!parallel_ || !parallel_->matches(trained)) {
    parallel_.reset();  // before the next one: its hooks hang on the same tensors
    parallel_ = std::make_unique<dist::DataParallel>(
        world_, as_module(*state_.model),
        dist::DataParallelOptions{.bucket_cap_mb = options_.bucket_cap_mb,
                                  .find_unused_parameters = options_.find_unused_parameters,
                                  .gradients_in_bf16 = options_.gradients_in_bf16,
                                  .broadcast_buffers = options_.broadcast_buffers,
                                  .share_values = false});
  }
  parallel_->before_forward();
}

void GradientSync::before_backward(const at::Tensor& loss, bool last) {
  if (syncs(last)) parallel_->before_backward({loss});
}

void GradientSync::after_backward(bool last) {
  if (syncs(last)) parallel_->after_backward();
}

void GradientSync::finish(Losses* batch_loss) {
  if (shards_) {
    shards_->finish();
    if (batch_loss) sum_shards(*batch_loss);
    shard_losses_.clear();
    return;
  }
  if (divides_gradients())
    optimizer_->reduce_gradients();
  else if (by_hand_)
    dist::average_gradients(*world_, trained_tensors(as_module(*state_.model)), options_.bucket_cap_mb);
  if (batch_loss) sum(*batch_loss);
}

DividedGradients::SumOverRanks GradientSync::sum_of_divided() const {
  if (!divides_gradients()) return {};
  return [world = world_.get()](const at::Tensor& tensor) { world->sum(tensor); };
}

void GradientSync::agree_on_overflow(const at::Tensor& found_inf) const {
  if (divides_gradients()) world_->max(found_inf);
}

void GradientSync::before_step() {
  if (optimizer_) optimizer_->before_step();
}

void GradientSync::after_step() {
  if (optimizer_) optimizer_->after_step();
}

// A row for each shard, which one rank alone fills, so that adding up ranks rounds nothing.
void GradientSync::sum_shards(Losses& losses) {
  const at::NoGradGuard no_grad;
  losses.clear();
  for (const auto& [shard, of_shard] : shard_losses_)
    for (const auto& [name, loss] : of_shard)
      if (!losses.find(name)) losses.set(name, loss);
  agree_on_losses(losses);
  const auto columns = static_cast<std::int64_t>(loss_names_.size());
  const at::Tensor rows = at::zeros({shards_->shards(), columns}, at::TensorOptions(state_.device).dtype(at::kDouble));
  for (const auto& [shard, of_shard] : shard_losses_)
    for (std::int64_t column = 0; column < columns; ++column)
      if (const at::Tensor* own = of_shard.find(loss_names_[static_cast<std::size_t>(column)].first))
        rows[shard][column].copy_(*own);
  world_->sum(rows);
  at::Tensor total = rows[0].clone();
  for (std::int64_t shard = 1; shard < shards_->shards(); ++shard) total.add_(rows[shard]);
  losses = named(total);
}

std::int64_t GradientSync::smallest(std::int64_t size) const {
  const at::Tensor least = at::scalar_tensor(size > 0 ? size : std::numeric_limits<std::int64_t>::max(), at::kLong);
  world_->min(least);
  return least.item<std::int64_t>();
}

// Ranks may have losses of different names: one without samples has none, and a model may leave one out. Messages have
// those of any rank, in one order.
void GradientSync::agree_on_losses(const Losses& own) {
  if (!agrees_on_losses_) {
    loss_names_.clear();
    std::string lines;
    for (const auto& [name, loss] : own) lines += join(static_cast<int>(loss.scalar_type()), ' ', name, '\0');
    for (const std::string& of_rank : world_->all_gather(lines)) {
      for (std::size_t from = 0, to = 0; from < of_rank.size(); from = to + 1) {
        to = of_rank.find('\0', from);
        const std::size_t space = of_rank.find(' ', from);
        std::string name = of_rank.substr(space + 1, to - space - 1);
        if (std::ranges::find(loss_names_, name, &LossName::first) != loss_names_.end()) continue;
        const int dtype = std::stoi(of_rank.substr(from, space - from));
        loss_names_.emplace_back(std::move(name), static_cast<at::ScalarType>(dtype));
      }
    }
    agrees_on_losses_ = true;
  }
  // The next batch begins with that, so that no batch needs a message more.
  has_other_losses_ = !own.empty() && !std::ranges::equal(own, loss_names_, {}, &Losses::Item::first, &LossName::first);
}

Losses GradientSync::named(const at::Tensor& sums) const {
  Losses losses;
  for (std::int64_t index = 0; const auto& [name, dtype] : loss_names_)
    losses.set(name, sums.select(0, index++).to(dtype));
  return losses;
}

// In double, so that each sum is rounded once.
void GradientSync::sum(Losses& losses) {
  const at::NoGradGuard no_grad;
  agree_on_losses(losses);
  if (loss_names_.empty()) return;
  std::vector<at::Tensor> values;
  values.reserve(loss_names_.size());
  for (const auto& [name, dtype] : loss_names_) {
    const at::Tensor* own = losses.find(name);
    values.push_back(own ? own->to(at::kDouble) : at::zeros({}, at::TensorOptions(state_.device).dtype(at::kDouble)));
  }
  const at::Tensor sums = at::stack(values);
  world_->sum(sums);
  losses = named(sums);
}

void GradientSync::share_buffers() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : composer::buffers(as_module(*state_.model))) buffers.push_back(buffer.detach());
  if (!buffers.empty()) world_->broadcast(buffers);
}

void GradientSync::share_model() {
  const at::NoGradGuard no_grad;
  std::vector<std::string> lines;
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : named_parameters(as_module(*state_.model))) {
    lines.push_back(dist::describe_tensor(name, parameter));
    parameters.push_back(parameter.detach());
  }
  for (const auto& [name, buffer] : named_buffers(as_module(*state_.model)))
    lines.push_back(dist::describe_tensor(name, buffer));
  dist::check_same_on_all_ranks(*world_, "model", lines);
  if (!parameters.empty()) world_->broadcast(parameters);
  share_buffers();
  note_shared();
}

void GradientSync::note_shared() {
  shared_.clear();
  for (const at::Tensor& parameter : parameters(as_module(*state_.model)))
    shared_.push_back({parameter, parameter.sizes().vec(), parameter.requires_grad()});
}

void GradientSync::check_model(const std::vector<std::string>& lines) const {
  try {
    dist::check_same_on_all_ranks(*world_, join("model after batch ", state_.timestamp.batch), lines);
  } catch (const ConfigError& error) {
    throw ConfigError(error.what(), dist::kOneForAll);
  }
}

bool GradientSync::has_changed() {
  if (optimizer_ && optimizer_->has_changed()) return true;
  const auto is_same = [](const Shared& shared, const at::Tensor& now) {
    return shared.parameter.is_same(now) && now.sizes() == at::IntArrayRef(shared.sizes) &&
           now.requires_grad() == shared.requires_grad;
  };
  return !std::ranges::equal(shared_, parameters(as_module(*state_.model)), is_same);
}

void GradientSync::share_new() {
  const at::NoGradGuard no_grad;
  std::vector<std::string> lines;
  std::vector<at::Tensor> added;
  std::unordered_map<const c10::TensorImpl*, const Shared*> known;
  for (const Shared& shared : shared_) known.emplace(shared.parameter.unsafeGetTensorImpl(), &shared);
  for (const auto& [name, parameter] : named_parameters(as_module(*state_.model))) {
    const auto before = known.find(parameter.unsafeGetTensorImpl());
    const bool is_new = before == known.end() || parameter.sizes() != at::IntArrayRef(before->second->sizes);
    lines.push_back(join(dist::describe_tensor(name, parameter), parameter.requires_grad() ? "" : ", frozen",
                         is_new ? ", new" : ""));
    if (is_new) added.push_back(parameter.detach());
  }
  check_model(lines);
  if (optimizer_) optimizer_->check();
  if (!added.empty()) {
    world_->broadcast(added);
    share_buffers();
  }
  note_shared();
}

}  // namespace composer
