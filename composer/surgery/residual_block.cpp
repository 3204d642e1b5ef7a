#include "composer/surgery/residual_block.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/util/own_random.h"

namespace composer {

ResidualBlock::~ResidualBlock() = default;

void ResidualBlock::set_drop(double rate, Drop how) {
  if (!(rate >= 0 && rate <= 1)) throw ConfigError("ResidualBlock: the drop rate must be from 0 to 1, got ", rate);
  drop_rate_ = rate;
  drop_ = how;
}

at::Tensor ResidualBlock::forward(const at::Tensor& x) {
  const double keep = 1 - drop_rate_;
  if (keep < 1 && is_training()) {
    if (drop_ == Drop::BATCH) {
      decides_on_host("a block is dropped or kept by a random number of the host");
      // If the branch is dropped, the result must not be written into a shortcut that is x itself.
      if (at::rand({}, at::kDouble).item<double>() >= keep) {
        at::Tensor y = shortcut(x);
        return finish(y.is_same(x) ? y.clone() : std::move(y));
      }
    } else {
      at::Tensor y = branch(x);
      std::vector<std::int64_t> shape(static_cast<std::size_t>(y.dim()), 1);
      shape[0] = y.size(0);
      // Draws in float, because bfloat16 has no numbers between 0.996 and 1.
      const at::ScalarType type = y.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      y = y * at::rand(shape, y.options().dtype(type)).add_(keep).floor_().to(y.scalar_type());
      return finish(add(std::move(y), shortcut(x)));
    }
  }
  at::Tensor y = branch(x);
  if (keep < 1 && !is_training()) y = y * keep;
  return finish(add(std::move(y), shortcut(x)));
}

at::Tensor ResidualBlock::shortcut(const at::Tensor& x) { return x; }

at::Tensor ResidualBlock::add(at::Tensor branch, const at::Tensor& shortcut) { return branch + shortcut; }

at::Tensor ResidualBlock::finish(at::Tensor sum) { return sum; }

}  // namespace composer
