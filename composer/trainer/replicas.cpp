#include "composer/trainer/replicas.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/dist/agreement.h"
#include "composer/dist/world.h"
#include "composer/optim/any_optimizer.h"
#include "composer/step/model_settings.h"
#include "composer/step/train_step.h"
#include "composer/step/weights_in_use.h"
#include "composer/trainer/ranks.h"
#include "composer/util/checksum.h"
#include "composer/util/exact_text.h"
#include "composer/util/random.h"

namespace composer {
namespace {

// Machines of different kinds round differently in some optimizers. The accumulated difference stays far below this.
constexpr double kRounding = 1e-3;

constexpr std::int64_t kWordsAtOnce = std::int64_t{1} << 20;  // number of words that are multiplied at once

// Odd multipliers, by the position of a word in its piece.
at::Tensor multipliers_on(at::Device device) {
  const at::Tensor all = at::empty({kWordsAtOnce}, at::kLong);
  auto* const multiplier = all.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < kWordsAtOnce; ++i)
    multiplier[i] = static_cast<std::int64_t>(hash64(static_cast<std::uint64_t>(i)) | 1);
  return all.to(device);
}

at::Tensor sum_by_place(const at::Tensor& contiguous, const at::Tensor& multipliers) {
  const std::int64_t size = contiguous.element_size();
  const at::Tensor words = contiguous.flatten().view(size == 1 ? at::kByte : size == 2 ? at::kShort : at::kInt);
  const at::Tensor sum = at::zeros({}, multipliers.options());
  for (std::int64_t from = 0; from < words.numel(); from += kWordsAtOnce) {
    const at::Tensor piece = words.slice(0, from, from + kWordsAtOnce).to(at::kLong);
    const at::Tensor of_piece = piece.mul_(multipliers.slice(0, 0, piece.numel())).sum();
    sum.mul_(static_cast<std::int64_t>(hash64(0) | 1)).add_(of_piece);
  }
  return sum;
}

std::uint64_t checksum_on_host(const at::Tensor& contiguous) {
  util::Checksum checksum;
  checksum.update(contiguous.const_data_ptr(), contiguous.nbytes());
  return checksum.value();
}

at::Tensor numbers_of(const at::Tensor& tensor) {
  return (tensor.is_complex() ? at::view_as_real(tensor.detach()) : tensor.detach()).to(at::kDouble);
}

std::uint64_t mixed(std::uint64_t before, double rate) { return hash64(before, std::bit_cast<std::uint64_t>(rate)); }

// The modules that are in evaluation mode while the model trains.
std::vector<std::string> frozen_modules(const torch::nn::Module& model) {
  StateDict settings;
  StateVisitor visit = StateVisitor::saving(settings);
  ModelSettings(model).visit_state(visit);
  std::vector<std::string> names;
  if (const StateValue* frozen = settings.find("frozen"))
    for (const auto& [name, value] : std::get<StateDict>(*frozen).entries())
      if (std::get<bool>(value)) names.push_back(name);
  return names;
}

std::vector<double> rates_in_force(const State& state) {
  return state.optimizer ? optim::learning_rates(*state.optimizer) : std::vector<double>();
}

// Equal on all ranks if all train the same model.
std::uint64_t digest_of(const State& state, const std::vector<std::uint64_t>& sums, bool modes) {
  const torch::nn::Module& model = as_module(*state.model);
  std::uint64_t digest = sums.size();
  for (const double rate : rates_in_force(state)) digest = mixed(digest, rate);
  for (const at::Tensor& parameter : parameters(model)) digest = hash64(digest, parameter.requires_grad() ? 1 : 0);
  const bool trains = modes && is_training(model);
  for (const ModulePointer& module : modules_below(model))
    digest = hash64(digest, trains && !is_training(*module) ? 1 : 0);
  for (const std::uint64_t sum : sums) digest = hash64(digest, sum);
  return digest;
}

// Formats ranks as "rank 1" or "ranks 1, 3".
std::string text_of_ranks(const std::vector<int>& ranks) {
  return join(ranks.size() == 1 ? "rank " : "ranks ", listed(ranks, [](int rank) { return std::to_string(rank); }));
}

// The ranks whose checksum of this parameter is not that of rank 0.
std::vector<int> others(const std::vector<at::Tensor>& by_rank, std::size_t parameter) {
  const auto sum = [&](std::size_t rank) { return by_rank[rank].const_data_ptr<std::int64_t>()[parameter]; };
  std::vector<int> differing;
  for (std::size_t rank = 1; rank < by_rank.size(); ++rank)
    if (sum(rank) != sum(0)) differing.push_back(static_cast<int>(rank));
  return differing;
}

}  // namespace

// Starts the sums of all tensors on a device before it waits for one of them.
std::vector<std::uint64_t> checksums_of(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<std::uint64_t> sums(tensors.size());
  std::vector<std::pair<std::size_t, at::Tensor>> on_device;
  at::Tensor multipliers;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (tensor.layout() != at::kStrided || tensor.numel() == 0) continue;
    const at::Tensor contiguous = tensor.detach().contiguous();
    if (tensor.is_cpu()) {
      sums[i] = checksum_on_host(contiguous);
      continue;
    }
    if (!multipliers.defined() || multipliers.device() != tensor.device())
      multipliers = multipliers_on(tensor.device());
    on_device.emplace_back(i, sum_by_place(contiguous, multipliers));
  }
  for (const auto& [i, sum] : on_device) sums[i] = static_cast<std::uint64_t>(sum.item<std::int64_t>());
  return sums;
}

at::Tensor checksum_on_device(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return sum_by_place(tensor.detach(), multipliers_on(tensor.device()));
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::NoGradGuard no_grad;
  if (a.numel() == 0) return 0;
  const at::Tensor one = numbers_of(a), other = numbers_of(b);
  const at::Tensor same = one.eq(other).logical_or_(one.isnan().logical_and_(other.isnan()));
  const auto difference = one.sub(other).abs_().masked_fill_(same, 0).max().item<double>();
  if (difference == 0) return 0;
  const auto largest = one.abs().max().item<double>();
  const double share = difference / largest;
  return share >= 0 ? share : std::numeric_limits<double>::infinity();
}

// Sets parameters that were added to the model to those of rank 0.
void ReplicaCheck::share_new() const {
  SharedModel& model = step_.ranks().joined()->model();
  if (!ranks_.any(model.has_changed())) return;
  try {
    model.share_new();
  } catch (const ConfigError& error) {
    ranks_.together([&] { throw ConfigError(error.what()); });
  }
}

// Throws on all ranks if they differ in more than the weights.
void ReplicaCheck::compare_settings(bool modes) const {
  std::vector<std::string> lines;
  for (std::size_t group = 0; const double rate : rates_in_force(state_))
    lines.push_back(join("learning rate of group ", group++, " = ", util::exact_text(rate)));
  const torch::nn::Module& model = as_module(*state_.model);
  for (const auto& [name, parameter] : named_parameters(model))
    lines.push_back(join(dist::describe_tensor(name, parameter), parameter.requires_grad() ? "" : ", frozen"));
  if (modes)
    for (const std::string& name : frozen_modules(model)) lines.push_back(name + " in evaluation mode");
  try {
    ranks_.check_same(join("after epoch ", state_.timestamp.epoch, ", batch ", state_.timestamp.batch), lines);
  } catch (const ConfigError& error) {
    ranks_.together([&] { throw ConfigError(error.what(), dist::kOneForAll); });
  }
}

// Throws for the first parameter that differs by more than rounding. If there is none, warns of the first that differs.
void ReplicaCheck::compare_weights(const std::vector<std::uint64_t>& sums) {
  const std::vector<std::int64_t> own(sums.begin(), sums.end());
  const std::vector<at::Tensor> by_rank = ranks_.world()->all_gather(at::tensor(own, at::kLong));
  const NamedTensorList all = named_parameters(as_module(*state_.model));
  std::string rounded;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::vector<int> differing = others(by_rank, i);
    if (differing.empty()) continue;
    const at::Tensor of_first = all[i].second.detach().contiguous().clone();
    ranks_.world()->broadcast(of_first);
    const at::Tensor apart = at::scalar_tensor(relative_difference(of_first, all[i].second), at::kDouble);
    ranks_.world()->max(apart);
    const auto share = apart.item<double>();
    if (share == 0) continue;
    const std::string text = join("the weights of the ranks differ after epoch ", state_.timestamp.epoch, ", batch ",
                                  state_.timestamp.batch, ": ", text_of_ranks(differing), " and rank 0 have another ",
                                  all[i].first, ", by up to ", share, " of its largest number");
    if (share > kRounding) ranks_.together([&] { throw ConfigError(text, dist::kOneForAll); });
    if (rounded.empty()) rounded = text;
  }
  if (rounded.empty() || !ranks_.first() || std::exchange(warned_, true)) return;
  warn(rounded + ". Ranks on machines of different kinds round differently; on equal ones they must not differ");
}

void ReplicaCheck::compare(bool modes) {
  has_new_save_ = false;
  if (ranks_.alone()) return;
  share_new();
  const std::vector<std::uint64_t> sums = checksums_of(parameters(as_module(*state_.model)));
  const auto digest = static_cast<std::int64_t>(digest_of(state_, sums, modes) >> 1);
  const at::Tensor bounds = at::tensor({digest, -digest}, at::kLong);
  ranks_.world()->max(bounds);
  const std::int64_t* bound = bounds.const_data_ptr<std::int64_t>();
  if (bound[0] == -bound[1]) return;
  compare_settings(modes);
  compare_weights(sums);
}

void ReplicaCheck::share_model(WeightsInUse& weights) const {
  GradientSync* const sync = step_.ranks().joined();
  if (!sync) return;
  const WeightsInUse::Unchanged unchanged(weights);
  sync->model().share();
}

void ReplicaCheck::share_buffers(WeightsInUse& weights) const {
  GradientSync* const sync = step_.ranks().joined();
  if (!sync) return;
  const WeightsInUse::Unchanged unchanged(weights);
  sync->model().share_buffers();
}

void ReplicaCheck::share_last_buffers(WeightsInUse& weights) const {
  if (ranks_.alone()) return;
  share_buffers(weights);
  const WeightsInUse::Scope exported(weights, WeightsUse::EXPORT);
  share_buffers(weights);
}

}  // namespace composer
