#include "composer/dist/sharded.h"

#include <algorithm>
#include <numeric>

#include <ATen/core/grad_mode.h>

#include "composer/core/error.h"
#include "composer/dist/agreement.h"
#include "composer/dist/world.h"

namespace composer::dist {
namespace {

constexpr const char* kWho = "sharded optimizer";

// The owner of each parameter, given its bytes.
std::vector<int> divide(const std::vector<std::int64_t>& bytes, int ranks) {
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks));
  std::vector<int> owners(bytes.size());
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(load);
    owners[i] = static_cast<int>(least - load.begin());
    *least += bytes[i];
  }
  return owners;
}

std::vector<std::int64_t> bytes_of(const Sharded::Named& parameters) {
  std::vector<std::int64_t> bytes;
  for (const auto& [name, tensor] : parameters) bytes.push_back(static_cast<std::int64_t>(tensor.nbytes()));
  return bytes;
}

}  // namespace

Sharded::Sharded(std::shared_ptr<World> world, Named parameters)
    : world_(std::move(world)), parameters_(std::move(parameters)) {
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : parameters_) lines.push_back(describe_tensor(name, tensor));
  if (!world_->is_alone()) check_same_on_all_ranks(*world_, kWho, lines);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!by_tensor_.emplace(parameters_[i].second.unsafeGetTensorImpl(), i).second ||
        !by_name_.emplace(parameters_[i].first, i).second)
      throw ConfigError(kWho, ": the parameter ", parameters_[i].first, " was given twice");
  }
  owners_ = divide(bytes_of(parameters_), world_->size());
}

std::size_t Sharded::index_of(const at::Tensor& parameter) const {
  const auto found = by_tensor_.find(parameter.unsafeGetTensorImpl());
  if (found == by_tensor_.end())
    throw ConfigError(kWho, ": a tensor ", parameter.sizes(), " is not one of the parameters");
  return found->second;
}

std::size_t Sharded::index_of(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) throw ConfigError(kWho, ": there is state of ", name, ", which is not a parameter");
  return found->second;
}

int Sharded::owner_of(const at::Tensor& parameter) const { return owners_[index_of(parameter)]; }
bool Sharded::is_own(const at::Tensor& parameter) const { return owner_of(parameter) == world_->rank(); }

double Sharded::largest_share() const {
  const std::vector<std::int64_t> bytes = bytes_of(parameters_);
  std::vector<std::int64_t> load(static_cast<std::size_t>(world_->size()));
  for (std::size_t i = 0; i < bytes.size(); ++i) load[static_cast<std::size_t>(owners_[i])] += bytes[i];
  const std::int64_t all = std::accumulate(load.begin(), load.end(), std::int64_t{0});
  return all == 0 ? 0 : static_cast<double>(std::ranges::max(load)) / static_cast<double>(all);
}

void Sharded::exchange() {
  if (world_->is_alone()) return;
  const at::NoGradGuard no_grad;
  for (int rank = 0; rank < world_->size(); ++rank) {
    std::vector<at::Tensor> owned;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (owners_[i] == rank) owned.push_back(parameters_[i].second.detach());
    if (!owned.empty()) world_->broadcast(owned, rank);
  }
}

}  // namespace composer::dist
