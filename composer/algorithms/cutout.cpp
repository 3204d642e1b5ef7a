#include "composer/algorithms/cutout.h"

#include <algorithm>
#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/rank_seed.h"
#include "composer/core/state.h"
#include "composer/util/random.h"
#include "composer/util/share_of.h"

namespace composer::algorithms {
namespace {

constexpr std::uint64_t kCutOutStream =
    0x6375746f7574;  // sets these random numbers apart from those of other uses of a seed

std::vector<Option<CutOutOptions>> cutout_options() {
  using O = CutOutOptions;
  return all_options(option("num_holes", &O::num_holes).at_least(1), option("length", &O::length).from_to(0, 1),
                     option("uniform_sampling", &O::uniform_sampling), option("input_key", &O::input_key).not_empty(),
                     part("draw", &O::draw, "a function"));
}

}  // namespace

std::vector<CutOutHole> cutout_holes(std::int64_t height, std::int64_t width, const CutOutOptions& options,
                                     const std::function<std::int64_t(std::int64_t low, std::int64_t high)>& sample) {
  static const auto described = cutout_options();  // described once for all batches
  check(options, described, "CutOut: ", "");
  const auto side = util::share_of(std::min(height, width), options.length);
  const std::int64_t half = side / 2, before = options.uniform_sampling ? -((side + 1) / 2) : 0,
                     after = options.uniform_sampling ? half : 0;
  std::vector<CutOutHole> holes;
  for (std::int64_t i = 0; i < options.num_holes; ++i) {
    const std::int64_t row = sample(before, height + after), column = sample(before, width + after);
    const auto clip = [half](std::int64_t centre, std::int64_t size) {
      return std::pair(std::clamp<std::int64_t>(centre - half, 0, size),
                       std::clamp<std::int64_t>(centre + half, 0, size));
    };
    const auto [top, bottom] = clip(row, height);
    const auto [left, right] = clip(column, width);
    holes.push_back({top, left, bottom, right});
  }
  return holes;
}

at::Tensor cutout_batch(const at::Tensor& input, const std::vector<CutOutHole>& holes) {
  at::Tensor cut = input.clone();
  for (const auto& [top, left, bottom, right] : holes)
    cut.narrow(-2, top, bottom - top).narrow(-1, left, right - left).zero_();
  return cut;
}

CutOut::CutOut(CutOutOptions options) : options_(checked("CutOut", std::move(options), cutout_options())) {}

void CutOut::apply(Event, State& state, Logger&) {
  const at::Tensor input = state.batch.at(options_.input_key);
  if (input.dim() != 4)
    throw ConfigError("CutOut: needs images [N, C, H, W]; \"", options_.input_key, "\" is ", input.sizes());
  RandomStream random(hash64(rank_seed(state), kCutOutStream, state.timestamp.batch));
  const auto sample = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(high - low)));
  };
  const std::int64_t height = input.size(2), width = input.size(3);
  const std::vector<CutOutHole> holes =
      options_.draw ? options_.draw(height, width) : cutout_holes(height, width, options_, sample);
  state.batch.set(options_.input_key, cutout_batch(input, holes));
}

StateDict CutOut::local_hparams() const { return describe(options_, cutout_options()); }

namespace entries {

Entry<Algorithms> cutout() { return entry<CutOut>("cutout", "Hides random squares of the images", cutout_options()); }

}  // namespace entries
}  // namespace composer::algorithms
