#include "composer/data/replay_buffer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/tensor.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/data/data_spec.h"
#include "composer/util/random.h"

namespace composer::data {
namespace {

constexpr std::uint64_t kReplay = 12;    // sets what is drawn apart from other random numbers of the seed
constexpr double kLeastPriority = 1e-6;  // so that a transition without an error is drawn again some time
constexpr const char* kIndex = "index";
constexpr const char* kWeight = "weight";

std::vector<Option<ReplayBufferOptions>> replay_options() {
  using O = ReplayBufferOptions;
  return all_options(
      option("capacity", &O::capacity).at_least(1, "transitions"), option("batch_size", &O::batch_size).at_least(1),
      option("batches_per_epoch", &O::batches_per_epoch).at_least(0), option("alpha", &O::alpha).at_least(0),
      option("beta", &O::beta).from_to(0, 1), option("seed", &O::seed));
}

}  // namespace

ReplayBuffer::ReplayBuffer(ReplayBufferOptions options)
    : options_(checked("ReplayBuffer", options, replay_options())),
      beta_(options_.beta),
      priorities_(options_.alpha > 0 ? static_cast<std::size_t>(options_.capacity) : 0) {}

void ReplayBuffer::allocate(const Batch& rows) {
  Batch all;
  for (const auto& [name, tensor] : rows) {
    if (name == kIndex || name == kWeight)
      throw DataError("ReplayBuffer: \"", name, "\" is added to each batch; give the transitions' tensor another name");
    std::vector<std::int64_t> shape = tensor.sizes().vec();
    shape.front() = options_.capacity;
    all.set(name, at::empty(shape, tensor.options().requires_grad(false)));
  }
  rows_ = std::move(all);
}

void ReplayBuffer::check_fits(const Batch& rows) const {
  if (rows.size() != rows_.size())
    throw DataError("ReplayBuffer: transitions have ", rows.size(), " tensors, and the first had ", rows_.size());
  for (const auto& [name, tensor] : rows) {
    const at::Tensor& ours = rows_.at(name);
    if (tensor.scalar_type() != ours.scalar_type() || tensor.sizes().slice(1) != ours.sizes().slice(1))
      throw DataError("ReplayBuffer: \"", name, "\" is ", tensor.sizes(), " of ", tensor.scalar_type(),
                      ", and the first transitions had [n] and ", ours.sizes().slice(1), " of ", ours.scalar_type());
  }
}

void ReplayBuffer::push(const Batch& transitions) {
  std::int64_t count = get_num_samples_in_batch(transitions);
  for (const auto& [name, tensor] : transitions)
    if (tensor.dim() == 0)
      throw DataError("ReplayBuffer: \"", name, "\" has no dimensions; the first counts transitions");
  if (rows_.empty()) allocate(transitions);
  check_fits(transitions);
  std::int64_t from = std::max<std::int64_t>(0, count - options_.capacity);  // earlier ones would give way at once
  while (from < count) {
    const std::int64_t length = std::min(count - from, options_.capacity - next_row_);
    for (auto& [name, tensor] : rows_)
      tensor.slice(0, next_row_, next_row_ + length).copy_(transitions.at(name).detach().slice(0, from, from + length));
    if (options_.alpha > 0)
      for (std::int64_t i = 0; i < length; ++i) priorities_.set(static_cast<std::size_t>(next_row_ + i), highest_);
    next_row_ = (next_row_ + length) % options_.capacity;
    size_ = std::min(size_ + length, options_.capacity);
    from += length;
  }
}

Batch ReplayBuffer::drawn(std::int64_t epoch, std::int64_t number) const {
  if (size_ == 0) throw DataError("ReplayBuffer: there are no transitions yet; push() some before training");
  RandomStream random(hash64(options_.seed.value_or(default_seed_), kReplay, epoch, number));
  std::vector<std::int64_t> index;
  std::vector<float> weights;
  const auto count = static_cast<double>(options_.batch_size);
  double largest = 0;
  std::vector<double> exact;
  for (std::int64_t i = 0; i < options_.batch_size; ++i) {
    if (options_.alpha == 0) {
      index.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size_))));
      continue;
    }
    // One from each of as many equal parts of the sum as the batch has samples, as in Schaul et al. 2015.
    const double sum = priorities_.total() * (static_cast<double>(i) + random.uniform()) / count;
    const std::size_t row = priorities_.find(sum);
    index.push_back(static_cast<std::int64_t>(row));
    const double probability = priorities_[row] / priorities_.total();
    exact.push_back(std::pow(static_cast<double>(size_) * probability, -beta_));
    largest = std::max(largest, exact.back());
  }
  for (const double weight : exact) weights.push_back(static_cast<float>(weight / largest));
  const at::Device device = rows_.front().device();
  const at::Tensor chosen = at::tensor(index, at::kLong).to(device);
  Batch batch;
  for (const auto& [name, tensor] : rows_) batch.set(name, tensor.index_select(0, chosen));
  batch.set(kIndex, chosen);
  if (options_.alpha > 0) batch.set(kWeight, at::tensor(weights).to(device));
  return batch;
}

void ReplayBuffer::update_priorities(const at::Tensor& index, const at::Tensor& priorities) {
  if (options_.alpha == 0) throw ConfigError("ReplayBuffer: priorities need alpha > 0");
  const at::Tensor rows = index.reshape({-1}).to(at::kCPU, at::kLong).contiguous();
  const at::Tensor values = priorities.detach().reshape({-1}).to(at::kCPU, at::kDouble).contiguous();
  if (rows.numel() != values.numel())
    throw DataError("ReplayBuffer: ", values.numel(), " priorities were given for ", rows.numel(), " transitions");
  const auto* row = rows.const_data_ptr<std::int64_t>();
  const auto* value = values.const_data_ptr<double>();
  // The sum of all must be finite, and none so small that it is never drawn.
  const double most = std::numeric_limits<double>::max() / (2 * static_cast<double>(options_.capacity));
  std::vector<double> powers;
  for (std::int64_t i = 0; i < rows.numel(); ++i) {
    if (row[i] < 0 || row[i] >= size_)
      throw DataError("ReplayBuffer: there is no transition ", row[i], "; it has ", size_);
    if (!std::isfinite(value[i]))
      throw DataError("ReplayBuffer: the priority of transition ", row[i], " is ", value[i]);
    const double power = std::pow(std::abs(value[i]) + kLeastPriority, options_.alpha);
    if (power > most)
      throw DataError("ReplayBuffer: the priority of transition ", row[i], " is ", value[i],
                      ", whose power alpha = ", options_.alpha, " is too large; give smaller ones");
    powers.push_back(std::max(power, std::numeric_limits<double>::min()));
  }
  for (std::int64_t i = 0; i < rows.numel(); ++i) {
    const double power = powers[static_cast<std::size_t>(i)];
    highest_ = std::max(highest_, power);
    priorities_.set(static_cast<std::size_t>(row[i]), power);
  }
}

void ReplayBuffer::set_beta(double beta) {
  ReplayBufferOptions options = options_;
  options.beta = beta;
  beta_ = checked("ReplayBuffer", options, replay_options()).beta;
}

void ReplayBuffer::seek(std::int64_t epoch, std::int64_t batch) {
  const std::int64_t most = options_.batches_per_epoch;
  if (epoch < 0 || batch < 0 || (most > 0 && batch > most))
    throw ConfigError("ReplayBuffer: there is no batch ", batch, " in epoch ", epoch);
  epoch_ = epoch;
  batch_ = batch;
}

std::optional<Batch> ReplayBuffer::next() {
  if (options_.batches_per_epoch > 0 && batch_ == options_.batches_per_epoch) return std::nullopt;
  Batch batch = drawn(epoch_, batch_);
  ++batch_;
  return batch;
}

std::optional<std::int64_t> ReplayBuffer::num_batches() const {
  return options_.batches_per_epoch > 0 ? std::optional(options_.batches_per_epoch) : std::nullopt;
}

void ReplayBuffer::fit_start(const State& state, Logger&) {
  if (state.world_size > 1 && state.rank == 0)
    warn(join(
        "ReplayBuffer: each of ", state.world_size,
        " ranks has a buffer of its own, and checkpoints have that of rank 0, with which all ranks of a resumed "
        "run go on; push the same transitions on all ranks if a resumed run is to be as one that was not stopped"));
}

StateDict ReplayBuffer::local_hparams() const { return describe(options_, replay_options()); }

void ReplayBuffer::visit_state(StateVisitor& visit) {
  std::map<std::string, at::Tensor> rows;
  std::vector<double> priorities;
  std::int64_t capacity = options_.capacity;
  if (!visit.is_loading()) {
    for (const auto& [name, tensor] : rows_) rows[name] = tensor.slice(0, 0, size_);
    if (options_.alpha > 0) {
      priorities.reserve(static_cast<std::size_t>(size_));
      for (std::int64_t i = 0; i < size_; ++i) priorities.push_back(priorities_[static_cast<std::size_t>(i)]);
    }
  }
  visit("capacity", capacity);
  visit("size", size_);
  visit("next_row", next_row_);
  visit("highest", highest_);
  visit("rows", rows);
  visit("priorities", priorities);
  if (visit.is_loading()) restore(std::move(rows), priorities, capacity, visit.path());
}

void ReplayBuffer::restore(std::map<std::string, at::Tensor> rows, const std::vector<double>& priorities,
                           std::int64_t old_capacity, const std::string& path) {
  const std::int64_t saved = size_, next = next_row_;
  size_ = next_row_ = 0;
  rows_ = {};
  if (saved < 0 || saved > old_capacity || next < 0 || next >= old_capacity || (saved > 0 && rows.empty()) ||
      (saved < old_capacity && next != saved))
    throw CheckpointError(path, ": has ", saved, " transitions of ", old_capacity, ", the next at ", next);
  if (saved > options_.capacity)
    throw CheckpointError(path, ": has ", saved, " transitions, more than the capacity, ", options_.capacity,
                          "; give the buffer a capacity of ", old_capacity);
  const double most = std::numeric_limits<double>::max() / (2 * static_cast<double>(old_capacity));
  for (const double priority : priorities)
    if (!(priority > 0) || !(priority <= most)) throw CheckpointError(path, ": a priority is ", priority);
  if (!(highest_ > 0) || !(highest_ <= most)) {
    const double found = std::exchange(highest_, 1);
    throw CheckpointError(path, ": the highest priority is ", found);
  }
  if (!priorities.empty() && static_cast<std::int64_t>(priorities.size()) != saved)
    throw CheckpointError(path, ": has ", priorities.size(), " priorities of ", saved, " transitions");
  const bool prioritized = options_.alpha > 0 && !priorities.empty();
  priorities_ = detail::SumTree(options_.alpha > 0 ? static_cast<std::size_t>(options_.capacity) : 0);
  if (saved == 0) return;
  Batch kept;
  // In a ring of another size the oldest come first.
  const std::int64_t first = old_capacity == options_.capacity || saved < old_capacity ? 0 : next;
  for (auto& [name, tensor] : rows) {
    if (tensor.dim() == 0 || tensor.size(0) != saved)
      throw CheckpointError(path, ": \"", name, "\" has the shape ", tensor.sizes(), ", and there are ", saved,
                            " transitions");
    kept.set(name, first == 0 ? tensor : tensor.roll(-first, 0));
  }
  allocate(kept);
  for (auto& [name, tensor] : rows_) tensor.slice(0, 0, saved).copy_(kept.at(name));
  for (std::int64_t i = 0; options_.alpha > 0 && i < saved; ++i)
    priorities_.set(static_cast<std::size_t>(i),
                    prioritized ? priorities[static_cast<std::size_t>((i + first) % saved)] : highest_);
  size_ = saved;
  next_row_ = old_capacity == options_.capacity ? next : saved % options_.capacity;
}

}  // namespace composer::data
