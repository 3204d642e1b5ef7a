#include "composer/algorithms/colout.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/algorithms/sampling.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/rank_seed.h"
#include "composer/core/state.h"
#include "composer/util/random.h"
#include "composer/util/share_of.h"

namespace composer::algorithms {
namespace {

constexpr std::uint64_t kColOutStream =
    0x636f6c6f7574;  // sets these random numbers apart from those of other uses of a seed

std::vector<Option<ColOutOptions>> colout_options() {
  using O = ColOutOptions;
  return all_options(option("p_row", &O::p_row).from_to(0, 1), option("p_col", &O::p_col).from_to(0, 1),
                     option("resize_target", &O::resize_target), option("input_key", &O::input_key).not_empty(),
                     option("target_key", &O::target_key).not_empty(), part("draw", &O::draw, "a function"));
}

}  // namespace

ColOutKept colout_kept(std::int64_t height, std::int64_t width, double p_row, double p_col,
                       const std::function<at::Tensor(std::int64_t n)>& permute) {
  static const auto described = colout_options();  // described once for all batches
  check(ColOutOptions{.p_row = p_row, .p_col = p_col}, described, "ColOut: ", "");
  const auto some = [&](std::int64_t size, double p) {
    const auto kept = std::max<std::int64_t>(1, util::share_of(size, 1 - p));
    return std::get<0>(permute(size).slice(0, 0, kept).sort());
  };
  at::Tensor rows = some(height, p_row);
  return {std::move(rows), some(width, p_col)};
}

at::Tensor colout_batch(const at::Tensor& input, const ColOutKept& kept) {
  return input.index_select(-2, kept.rows.to(input.device(), /*non_blocking=*/true))
      .index_select(-1, kept.columns.to(input.device(), /*non_blocking=*/true));
}

ColOut::ColOut(ColOutOptions options) : options_(checked("ColOut", std::move(options), colout_options())) {}

void ColOut::apply(Event, State& state, Logger&) {
  const at::Tensor input = state.batch.at(options_.input_key);
  if (input.dim() != 4)
    throw ConfigError("ColOut: needs images [N, C, H, W]; \"", options_.input_key, "\" is ", input.sizes());
  const std::int64_t height = input.size(2), width = input.size(3);
  RandomStream random(hash64(rank_seed(state), kColOutStream, state.timestamp.batch));
  const auto permute = [&](std::int64_t n) { return sample_permutation(n, random); };
  const ColOutKept kept = options_.draw ? options_.draw(height, width)
                                        : colout_kept(height, width, options_.p_row, options_.p_col, permute);
  state.batch.set(options_.input_key, colout_batch(input, kept));
  if (!options_.resize_target) return;
  const at::Tensor target = state.batch.at(options_.target_key);
  if (target.dim() > 2 && target.sizes().slice(target.dim() - 2) == input.sizes().slice(2))
    state.batch.set(options_.target_key, colout_batch(target, kept));
}

StateDict ColOut::local_hparams() const { return describe(options_, colout_options()); }

namespace entries {

Entry<Algorithms> colout() {
  return entry<ColOut>("colout", "Drops random rows and columns of the images", colout_options());
}

}  // namespace entries
}  // namespace composer::algorithms
