#include "composer/dist/sharded.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "composer/core/error.h"
#include "composer/dist/agreement.h"
#include "composer/dist/world.h"

namespace composer::dist {
namespace {

constexpr const char* kShardedOptimizer = "sharded optimizer";
constexpr int kNobody = -1;

std::int64_t parameter_bytes(const at::Tensor& parameter) { return static_cast<std::int64_t>(parameter.nbytes()); }

}  // namespace

Sharded::Sharded(std::shared_ptr<World> world, Named parameters) : world_(std::move(world)) {
  set_parameters(std::move(parameters));
  check();
}

void Sharded::check() const {
  if (world_->is_alone()) return;
  std::vector<std::string> lines;
  lines.reserve(parameters_.size());
  for (const auto& [name, tensor] : parameters_) lines.push_back(describe_tensor(name, tensor));
  check_same_on_all_ranks(*world_, kShardedOptimizer, lines);
}

void Sharded::set_parameters(Named parameters) {
  std::unordered_map<const void*, std::size_t> by_tensor;
  std::unordered_map<std::string, std::size_t> by_name;
  std::vector<int> known(parameters.size(), kNobody);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    if (!by_tensor.emplace(tensor.unsafeGetTensorImpl(), i).second || !by_name.emplace(name, i).second)
      throw ConfigError(kShardedOptimizer, ": the parameter ", name, " was given twice");
    const auto before = by_tensor_.find(tensor.unsafeGetTensorImpl());
    if (before != by_tensor_.end()) known[i] = owners_[before->second];
  }
  parameters_ = std::move(parameters);
  by_tensor_ = std::move(by_tensor);
  by_name_ = std::move(by_name);
  divide(known);
}

// Divides parameters that require gradients first, so that a frozen part of the model does not make the shares of the
// rest unequal.
void Sharded::divide(const std::vector<int>& known) {
  owners_ = known;
  std::vector<std::int64_t> load(static_cast<std::size_t>(world_->size()));
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < known.size(); ++i)
    if (known[i] == kNobody)
      order.push_back(i);
    else
      load[static_cast<std::size_t>(known[i])] += parameter_bytes(parameters_[i].second);
  const auto rank_of = [&](std::size_t i) {
    const at::Tensor& tensor = parameters_[i].second;
    return std::pair(!tensor.requires_grad(), -parameter_bytes(tensor));
  };
  std::ranges::stable_sort(order, {}, rank_of);
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(load);
    owners_[i] = static_cast<int>(least - load.begin());
    *least += parameter_bytes(parameters_[i].second);
  }
}

std::size_t Sharded::index_of(const at::Tensor& parameter) const {
  const auto found = by_tensor_.find(parameter.unsafeGetTensorImpl());
  if (found == by_tensor_.end())
    throw ConfigError(kShardedOptimizer, ": a tensor ", parameter.sizes(), " is not one of the parameters");
  return found->second;
}

std::size_t Sharded::index_of(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end())
    throw ConfigError(kShardedOptimizer, ": there is state of ", name, ", which is not a parameter");
  return found->second;
}

int Sharded::owner_of(const at::Tensor& parameter) const { return owners_[index_of(parameter)]; }
bool Sharded::is_own(const at::Tensor& parameter) const { return owner_of(parameter) == world_->rank(); }

double Sharded::largest_share() const {
  std::vector<std::int64_t> load(static_cast<std::size_t>(world_->size()));
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    load[static_cast<std::size_t>(owners_[i])] += parameter_bytes(parameters_[i].second);
  const std::int64_t all = std::accumulate(load.begin(), load.end(), std::int64_t{0});
  return all == 0 ? 0 : static_cast<double>(std::ranges::max(load)) / static_cast<double>(all);
}

void Sharded::exchange(std::int64_t message_bytes) {
  exchange(std::vector<bool>(parameters_.size(), true), message_bytes);
}

}  // namespace composer::dist
