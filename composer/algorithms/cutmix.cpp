#include "composer/algorithms/cutmix.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/algorithms/mixing.h"
#include "composer/algorithms/sampling.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/rank_seed.h"
#include "composer/core/state.h"
#include "composer/util/random.h"
#include "composer/util/share_of.h"

namespace composer::algorithms {
namespace {

constexpr std::uint64_t kCutMixStream =
    0x6375746d6978;  // sets these random numbers apart from those of other uses of a seed

at::Tensor in_box(const at::Tensor& images, const CutMixBox& box) {
  return images.slice(-2, box.top, box.bottom).slice(-1, box.left, box.right);
}

at::Tensor with_box(const at::Tensor& images, const at::Tensor& permutation, const CutMixBox& box) {
  at::Tensor cut = images.clone();
  in_box(cut, box).copy_(in_box(images, box).index_select(0, permutation));
  return cut;
}

double share_of_box(const at::Tensor& images, const CutMixBox& box) {
  const auto area = static_cast<double>((box.bottom - box.top) * (box.right - box.left));
  return area / static_cast<double>(images.size(2) * images.size(3));
}

bool has_size_of(const at::Tensor& target, const at::Tensor& images) {
  return target.dim() > 2 && target.sizes().slice(target.dim() - 2) == images.sizes().slice(images.dim() - 2);
}

std::vector<Option<CutMixOptions>> cutmix_options() {
  using O = CutMixOptions;
  return all_options(option("alpha", &O::alpha).above(0).finite(), option("interpolate_loss", &O::interpolate_loss),
                     option("uniform_sampling", &O::uniform_sampling), option("input_key", &O::input_key).not_empty(),
                     option("target_key", &O::target_key).not_empty(), part("draw", &O::draw, "a function"));
}

}  // namespace

CutMixBox cutmix_box(std::int64_t height, std::int64_t width, double length, bool uniform_sampling,
                     const std::function<std::int64_t(std::int64_t low, std::int64_t high)>& sample) {
  if (!(length >= 0 && length <= 1)) throw ConfigError("cutmix_box: length must be from 0 to 1, got ", length);
  const auto cut = [&](std::int64_t size) {
    const auto side = util::share_of(size, length);
    const std::int64_t before = uniform_sampling ? -((side + 1) / 2) : 0, after = uniform_sampling ? side / 2 : 0;
    const std::int64_t centre = sample(before, size + after);
    return std::pair(std::clamp<std::int64_t>(centre - side / 2, 0, size),
                     std::clamp<std::int64_t>(centre + side / 2, 0, size));
  };
  const auto [top, bottom] = cut(height);
  const auto [left, right] = cut(width);
  return {top, left, bottom, right};
}

CutMixBatch cutmix_batch(const at::Tensor& input, const at::Tensor& target, const at::Tensor& permutation,
                         const CutMixBox& box) {
  const at::Tensor of_input = permutation.to(input.device(), /*non_blocking=*/true),
                   of_target = permutation.to(target.device(), /*non_blocking=*/true);
  return {with_box(input, of_input, box),
          has_size_of(target, input) ? with_box(target, of_target, box) : target.index_select(0, of_target),
          1 - share_of_box(input, box)};
}

CutMix::CutMix(CutMixOptions options) : options_(checked("CutMix", std::move(options), cutmix_options())) {}

EventSet CutMix::events() const {
  return {Event::BEFORE_TRAIN_BATCH, Event::BEFORE_FORWARD,
          options_.interpolate_loss ? Event::BEFORE_BACKWARD : Event::BEFORE_LOSS};
}

CutMixDraw CutMix::draw(const State& state, const at::Tensor& input) {
  const std::int64_t microbatch = microbatches_.next(state.timestamp.batch), height = input.size(2),
                     width = input.size(3);
  if (options_.draw) return options_.draw(input.size(0), height, width);
  RandomStream random(hash64(rank_seed(state), kCutMixStream, state.timestamp.batch, microbatch));
  at::Tensor permutation = sample_permutation(input.size(0), random);
  const double length = std::sqrt(1 - sample_beta(options_.alpha, options_.alpha, random));
  const auto sample = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(high - low)));
  };
  return {std::move(permutation), cutmix_box(height, width, length, options_.uniform_sampling, sample)};
}

void CutMix::cut(State& state) {
  const at::Tensor input = state.batch.at(options_.input_key), target = state.batch.at(options_.target_key);
  if (input.dim() != 4)
    throw ConfigError("CutMix: needs images [N, C, H, W]; \"", options_.input_key, "\" is ", input.sizes());
  if (options_.interpolate_loss && has_size_of(target, input))
    throw ConfigError("CutMix: interpolate_loss needs one target per image; \"", options_.target_key, "\" is ",
                      target.sizes());
  const auto [permutation, box] = draw(state, input);
  permutation_ = permutation.to(input.device(), /*non_blocking=*/true);
  box_ = box;
  state.batch.set(options_.input_key, with_box(input, permutation_, box));
}

void CutMix::apply(Event event, State& state, Logger&) {
  if (event == Event::BEFORE_TRAIN_BATCH) return microbatches_.restart();
  if (event == Event::BEFORE_FORWARD) return cut(state);
  const at::Tensor &input = state.batch.at(options_.input_key), &target = state.batch.at(options_.target_key);
  const at::Tensor permutation = std::exchange(permutation_, {}).to(target.device(), /*non_blocking=*/true);
  if (has_size_of(target, input)) return state.batch.set(options_.target_key, with_box(target, permutation, box_));
  const at::Tensor other = target.index_select(0, permutation);
  const double replaced = share_of_box(input, box_);
  if (event == Event::BEFORE_BACKWARD) return mix_losses(state, options_.target_key, other, replaced);
  mix_targets("CutMix", state, options_.target_key, other, replaced);
}

StateDict CutMix::local_hparams() const { return describe(options_, cutmix_options()); }

namespace entries {

Entry<Algorithms> cutmix() {
  return entry<CutMix>("cutmix", "Trains on images with a rectangle of another image", cutmix_options());
}

}  // namespace entries
}  // namespace composer::algorithms
