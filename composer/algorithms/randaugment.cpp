#include "composer/algorithms/randaugment.h"

#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/rank_seed.h"
#include "composer/core/state.h"
#include "composer/util/random.h"

namespace composer::algorithms {
namespace {

constexpr std::uint64_t kRandAugmentStream =
    0x72616e64617567;  // sets these random numbers apart from other uses of a seed

std::vector<Option<RandAugmentOptions>> randaugment_options() {
  using O = RandAugmentOptions;
  return all_options(
      option("severity", &O::severity).from_to(0, 10), option("depth", &O::depth).at_least(0),
      option("augmentation_set", &O::augmentation_set,
             {{"all", AugmentationSet::ALL}, {"safe", AugmentationSet::SAFE}, {"original", AugmentationSet::ORIGINAL}}),
      option("input_key", &O::input_key).not_empty());
}

}  // namespace

std::vector<ImageChanges> draw_randaugment(at::IntArrayRef sizes, const RandAugmentOptions& options,
                                           std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<ImageChanges> changes(static_cast<std::size_t>(sizes[0]));
  for (ImageChanges& of_image : changes)
    for (std::int64_t step = 0; step < options.depth; ++step)
      of_image.push_back(sample_image_change(options.augmentation_set, options.severity, sizes[2], sizes[3], random));
  return changes;
}

at::Tensor randaugment_batch(const at::Tensor& images, const std::vector<ImageChanges>& changes) {
  return from_bytes(change_images(to_bytes(images, "RandAugment"), changes), images);
}

RandAugment::RandAugment(RandAugmentOptions options)
    : options_(checked("RandAugment", std::move(options), randaugment_options())) {}

void RandAugment::apply(Event, State& state, Logger&) {
  const at::Tensor images = state.batch.at(options_.input_key);
  const at::Tensor bytes = to_bytes(images, "RandAugment");
  if (images.size(0) > 0 && !std::exchange(is_checked_, true)) warn_unless_from_0_to_1(images, "RandAugment");
  const auto changes =
      draw_randaugment(images.sizes(), options_, hash64(rank_seed(state), kRandAugmentStream, state.timestamp.batch));
  state.batch.set(options_.input_key, from_bytes(change_images(bytes, changes), images));
}

StateDict RandAugment::local_hparams() const { return describe(options_, randaugment_options()); }

namespace entries {

Entry<Algorithms> randaugment() {
  return entry<RandAugment>("randaugment", "Changes images by random operations", randaugment_options());
}

}  // namespace entries
}  // namespace composer::algorithms
