#include "composer/algorithms/augmix.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include "composer/algorithms/sampling.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/rank_seed.h"
#include "composer/core/state.h"
#include "composer/util/random.h"

namespace composer::algorithms {
namespace {

constexpr std::uint64_t kAugMixStream =
    0x6175676d6978;  // sets these random numbers apart from those of other uses of a seed

// Returns one number for each image, in a shape that broadcasts to [N, C, H, W].
template <class NumberOf>
at::Tensor number_per_image(const std::vector<AugMixDraw>& draws, at::Device device, NumberOf&& number_of) {
  std::vector<float> numbers;
  numbers.reserve(draws.size());
  for (const AugMixDraw& draw : draws) numbers.push_back(static_cast<float>(number_of(draw)));
  return at::tensor(numbers, at::kFloat).to(device, /*non_blocking=*/true).view({-1, 1, 1, 1});
}

at::Tensor mixed(const at::Tensor& bytes, const std::vector<AugMixDraw>& draws) {
  const std::size_t width = draws.empty() ? 0 : draws.front().weights.size();
  std::vector<ImageChanges> changes;  // first those of all images' first chains, then of their second chains, and so on
  for (std::size_t chain = 0; chain < width; ++chain)
    for (const AugMixDraw& draw : draws) changes.push_back(draw.chains.at(chain));
  if (changes.empty()) return bytes;
  const auto parts = change_images(bytes.repeat({static_cast<std::int64_t>(width), 1, 1, 1}), changes)
                         .chunk(static_cast<std::int64_t>(width));
  at::Tensor sum;
  for (std::size_t chain = 0; chain < width; ++chain) {
    const at::Tensor weights =
        number_per_image(draws, bytes.device(), [&](const AugMixDraw& draw) { return draw.weights.at(chain); });
    sum = chain == 0 ? parts[chain].mul(weights) : sum.add_(parts[chain].mul(weights));
  }
  const at::Tensor mixing = number_per_image(draws, bytes.device(), [](const AugMixDraw& draw) { return draw.mixing; });
  return bytes.mul(1 - mixing).add_(sum.mul_(mixing)).clamp_(0, 255).to(at::kByte);
}

std::vector<Option<AugMixOptions>> augmix_options() {
  using O = AugMixOptions;
  return all_options(
      option("severity", &O::severity).from_to(0, 10), option("depth", &O::depth),
      option("width", &O::width).at_least(1), option("alpha", &O::alpha).above(0).finite(),
      option("augmentation_set", &O::augmentation_set,
             {{"all", AugmentationSet::ALL}, {"safe", AugmentationSet::SAFE}, {"original", AugmentationSet::ORIGINAL}}),
      option("input_key", &O::input_key).not_empty());
}

}  // namespace

std::vector<AugMixDraw> draw_augmix(at::IntArrayRef sizes, const AugMixOptions& options, std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<AugMixDraw> draws(static_cast<std::size_t>(sizes[0]));
  for (AugMixDraw& draw : draws) {
    draw.weights = sample_dirichlet(options.alpha, options.width, random);
    draw.mixing = sample_beta(options.alpha, options.alpha, random);
    draw.chains.resize(draw.weights.size());
    for (ImageChanges& chain : draw.chains) {
      const std::int64_t depth = options.depth > 0 ? options.depth : 1 + static_cast<std::int64_t>(random.below(3));
      for (std::int64_t step = 0; step < depth; ++step)
        chain.push_back(sample_image_change(options.augmentation_set, options.severity, sizes[2], sizes[3], random));
    }
  }
  return draws;
}

at::Tensor augmix_batch(const at::Tensor& images, const std::vector<AugMixDraw>& draws) {
  return from_bytes(mixed(to_bytes(images, "AugMix"), draws), images);
}

AugMix::AugMix(AugMixOptions options) : options_(checked("AugMix", std::move(options), augmix_options())) {}

void AugMix::apply(Event, State& state, Logger&) {
  const at::Tensor images = state.batch.at(options_.input_key);
  const at::Tensor bytes = to_bytes(images, "AugMix");
  if (images.size(0) > 0 && !std::exchange(is_checked_, true)) warn_unless_from_0_to_1(images, "AugMix");
  const auto draws =
      draw_augmix(images.sizes(), options_, hash64(rank_seed(state), kAugMixStream, state.timestamp.batch));
  state.batch.set(options_.input_key, from_bytes(mixed(bytes, draws), images));
}

StateDict AugMix::local_hparams() const { return describe(options_, augmix_options()); }

namespace entries {

Entry<Algorithms> augmix() {
  return entry<AugMix>("augmix", "Mixes images with changed versions of themselves", augmix_options());
}

}  // namespace entries
}  // namespace composer::algorithms
