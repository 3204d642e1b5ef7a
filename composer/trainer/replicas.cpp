#include "composer/trainer/replicas.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_real.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/dist/agreement.h"
#include "composer/dist/world.h"
#include "composer/optim/any_optimizer.h"
#include "composer/trainer/model_settings.h"
#include "composer/trainer/ranks.h"
#include "composer/util/exact_text.h"
#include "composer/util/random.h"

namespace composer {
namespace {

// Machines of different kinds round differently in some optimizers. What that adds up to stays far below.
constexpr double kRounding = 1e-3;

constexpr const char* kRemedy =
    ". What each rank computes for itself must be the same on all: look at algorithms, callbacks, schedules and "
    "optimizers of your own that ask for the rank, and go on from a checkpoint that was written before";

// The memory of a dense tensor, as the widest whole numbers it can be read as.
at::Tensor words_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  const at::Tensor flat = dense.as_strided({dense.numel()}, {1}, dense.storage_offset());
  const auto size = static_cast<std::int64_t>(flat.element_size());
  if (size >= 4 || ((flat.numel() | flat.storage_offset()) * size) % 4 == 0) return flat.view(at::kInt);
  return flat.view(size == 2 ? at::kShort : at::kByte);
}

// In the type of the words, which needs no copy of them; what does not fit is lost on all ranks alike.
at::Tensor sum_of_bits(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.numel() == 0) return at::scalar_tensor(0, at::kLong);
  const at::Tensor words = words_of(tensor.detach());
  return words.sum(words.scalar_type()).to(at::kLong);
}

at::Tensor numbers_of(const at::Tensor& tensor) {
  return (tensor.is_complex() ? at::view_as_real(tensor.detach()) : tensor.detach()).to(at::kDouble);
}

bool on_one_device(const std::vector<at::Tensor>& tensors) {
  return std::ranges::all_of(tensors, [&](const at::Tensor& one) { return one.device() == tensors.front().device(); });
}

std::uint64_t mixed(std::uint64_t before, double rate) { return hash64(before, std::bit_cast<std::uint64_t>(rate)); }

// Those that evaluate while the model trains.
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

// What has been put into the model since is left out: the next step gives all ranks that of rank 0.
std::vector<at::Tensor> known_of(std::vector<at::Tensor> now, const std::vector<at::Tensor>& known) {
  std::unordered_set<const void*> before;
  for (const at::Tensor& tensor : known) before.insert(tensor.unsafeGetTensorImpl());
  for (at::Tensor& tensor : now)
    if (!before.contains(tensor.unsafeGetTensorImpl())) tensor = at::empty({0});
  return now;
}

// Equal on all ranks if all train the same.
std::uint64_t digest_of(const State& state, const std::vector<std::int64_t>& sums) {
  const torch::nn::Module& model = as_module(*state.model);
  std::uint64_t digest = sums.size();
  for (const double rate : optim::learning_rates(*state.optimizer)) digest = mixed(digest, rate);
  for (const at::Tensor& parameter : parameters(model)) digest = hash64(digest, parameter.requires_grad() ? 1 : 0);
  const bool trains = is_training(model);
  for (const ModulePointer& module : modules_below(model))
    digest = hash64(digest, trains && !is_training(*module) ? 1 : 0);
  for (const std::int64_t sum : sums) digest = hash64(digest, static_cast<std::uint64_t>(sum));
  return digest;
}

// "rank 1", "ranks 1, 3".
std::string text_of_ranks(const std::vector<int>& ranks) {
  return join(ranks.size() == 1 ? "rank " : "ranks ", listed(ranks, [](int rank) { return std::to_string(rank); }));
}

// Whose sum of this parameter is not that of rank 0.
std::vector<int> others(const std::vector<at::Tensor>& by_rank, std::size_t parameter) {
  const auto sum = [&](std::size_t rank) { return by_rank[rank].const_data_ptr<std::int64_t>()[parameter]; };
  std::vector<int> differing;
  for (std::size_t rank = 1; rank < by_rank.size(); ++rank)
    if (sum(rank) != sum(0)) differing.push_back(static_cast<int>(rank));
  return differing;
}

}  // namespace

std::vector<std::int64_t> sums_of_bits(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums;
  sums.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) sums.push_back(sum_of_bits(tensor));
  if (sums.empty()) return {};
  if (!on_one_device(sums))
    for (at::Tensor& sum : sums) sum = sum.cpu();
  const at::Tensor all = at::stack(sums).cpu();
  const std::int64_t* first = all.const_data_ptr<std::int64_t>();
  return {first, first + all.numel()};
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

// Throws on all ranks alike if they differ in more than the weights.
void ReplicaCheck::compare_settings() const {
  std::vector<std::string> lines;
  for (std::size_t group = 0; const double rate : optim::learning_rates(*state_.optimizer))
    lines.push_back(join("learning rate of group ", group++, " = ", util::exact_text(rate)));
  const torch::nn::Module& model = as_module(*state_.model);
  for (const auto& [name, parameter] : named_parameters(model))
    lines.push_back(join(dist::describe_tensor(name, parameter), parameter.requires_grad() ? "" : ", frozen"));
  for (const std::string& name : frozen_modules(model)) lines.push_back(name + " in evaluation mode");
  try {
    ranks_.check_same(join("after epoch ", state_.timestamp.epoch, ", batch ", state_.timestamp.batch), lines);
  } catch (const ConfigError& error) {
    ranks_.together([&] { throw ConfigError(error.what(), kRemedy); });
  }
}

// Of the first parameter that differs by more than rounding; else a warning.
void ReplicaCheck::compare_weights(const std::vector<std::int64_t>& sums) {
  const std::vector<at::Tensor> by_rank = ranks_.world()->all_gather(at::tensor(sums, at::kLong));
  const NamedTensorList all = named_parameters(as_module(*state_.model));
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
    if (share > kRounding) ranks_.together([&] { throw ConfigError(text, kRemedy); });
    if (ranks_.first() && !std::exchange(warned_, true))
      warn(text + ". Ranks on machines of different kinds round differently; on equal ones they must not differ");
    return;
  }
}

void ReplicaCheck::begin_fit() {
  if (!ranks_.alone()) known_ = parameters(as_module(*state_.model));
}

void ReplicaCheck::compare() {
  untold_ = asked_ = false;
  if (ranks_.alone() || compared_at_ == state_.timestamp.batch) return;
  const std::vector<at::Tensor> now = parameters(as_module(*state_.model));
  const std::vector<std::int64_t> sums = sums_of_bits(known_of(now, std::exchange(known_, now)));
  const auto digest = static_cast<std::int64_t>(digest_of(state_, sums) >> 1);
  const at::Tensor bounds = at::tensor({digest, -digest}, at::kLong);
  ranks_.world()->max(bounds);
  const std::int64_t* bound = bounds.const_data_ptr<std::int64_t>();
  if (bound[0] != -bound[1]) {
    compare_settings();
    compare_weights(sums);
  }
  compared_at_ = state_.timestamp.batch;
}

}  // namespace composer
