#include "composer/step/loss_sums.h"

#include <algorithm>
#include <cstddef>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/dist/world.h"

namespace composer {

void LossSums::agree(const Losses& own) {
  if (!agrees_) {
    names_.clear();
    std::string lines;
    for (const auto& [name, loss] : own) lines += join(static_cast<int>(loss.scalar_type()), ' ', name, '\0');
    for (const std::string& of_rank : world_->all_gather(lines)) {
      for (std::size_t from = 0, to = 0; from < of_rank.size(); from = to + 1) {
        to = of_rank.find('\0', from);
        const std::size_t space = of_rank.find(' ', from);
        std::string name = of_rank.substr(space + 1, to - space - 1);
        if (std::ranges::find(names_, name, &Name::first) != names_.end()) continue;
        const int dtype = std::stoi(of_rank.substr(from, space - from));
        names_.emplace_back(std::move(name), static_cast<at::ScalarType>(dtype));
      }
    }
    agrees_ = true;
  }
  // The next batch begins by sending this flag, so no batch needs one more message.
  has_others_ = !own.empty() && !std::ranges::equal(own, names_, {}, &Losses::Item::first, &Name::first);
}

Losses LossSums::named(const at::Tensor& sums) const {
  Losses losses;
  for (std::int64_t index = 0; const auto& [name, dtype] : names_) losses.set(name, sums.select(0, index++).to(dtype));
  return losses;
}

// Sums in double, so that each sum is rounded once.
void LossSums::sum(Losses& losses) {
  const at::NoGradGuard no_grad;
  agree(losses);
  if (names_.empty()) return;
  std::vector<at::Tensor> values;
  values.reserve(names_.size());
  for (const auto& [name, dtype] : names_) {
    const at::Tensor* own = losses.find(name);
    values.push_back(own ? own->to(at::kDouble) : at::zeros({}, at::TensorOptions(device_).dtype(at::kDouble)));
  }
  const at::Tensor sums = at::stack(values);
  world_->sum(sums);
  losses = named(sums);
}

// Each shard has a row, which only one rank fills, so that the sum over ranks rounds nothing.
Losses LossSums::sum_shards(const std::vector<OfShard>& own, std::int64_t shards) {
  const at::NoGradGuard no_grad;
  Losses first;
  for (const auto& [shard, of_shard] : own)
    for (const auto& [name, loss] : of_shard)
      if (!first.find(name)) first.set(name, loss);
  agree(first);
  const auto columns = static_cast<std::int64_t>(names_.size());
  const at::Tensor rows = at::zeros({shards, columns}, at::TensorOptions(device_).dtype(at::kDouble));
  for (const auto& [shard, of_shard] : own)
    for (std::int64_t column = 0; column < columns; ++column)
      if (const at::Tensor* loss = of_shard.find(names_[static_cast<std::size_t>(column)].first))
        rows[shard][column].copy_(*loss);
  world_->sum(rows);
  at::Tensor total = rows[0].clone();
  for (std::int64_t shard = 1; shard < shards; ++shard) total.add_(rows[shard]);
  return named(total);
}

}  // namespace composer
