// algorithms.json: the operations on images, and what RandAugment and AugMix make of them.
#include "tests/replay/algorithms_augmentations.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "composer/algorithms/augmix.h"
#include "composer/algorithms/image_ops.h"
#include "composer/algorithms/randaugment.h"
#include "tests/replay/recorded.h"

namespace composer::replay {
namespace {

using algorithms::AugmentationSet;
using algorithms::ImageChange;
using algorithms::ImageChanges;
using algorithms::ImageOp;

// Recorded [H, W, C] as uint8 [1, C, H, W].
at::Tensor image_of(const at::Tensor& recorded) { return recorded.to(at::kByte).permute({2, 0, 1}).unsqueeze(0); }

std::optional<ImageOp> find_op(const std::string& name) {
  for (const ImageOp op : algorithms::image_ops_of(AugmentationSet::ALL))
    if (name == to_string(op)) return op;
  return std::nullopt;
}

ImageChange draw(ImageOp op, double severity, AugmentationSet set, const at::Tensor& image, RecordedRandom& random) {
  return algorithms::draw_image_change(op, severity, set, image.size(2), image.size(3),
                                       [&](double low, double high) { return random.uniform(low, high); });
}

ImageChanges draw_chain(std::int64_t depth, double severity, const at::Tensor& image, RecordedRandom& random) {
  ImageChanges changes;
  for (std::int64_t step = 0; step < depth; ++step) {
    const auto name = random.next("np.random.choice").at("value").get<std::string>();
    changes.push_back(draw(find_op(name).value(), severity, AugmentationSet::ALL, image, random));
  }
  return changes;
}

Outcome judge_image(const Json& c, const Recorded& tensors, const at::Tensor& got, const RecordedRandom& random) {
  if (!random.is_used_up()) return wrong("fewer random numbers were drawn than recorded");
  return judge(c, to_json(image_of(tensors.at("out.image"))), to_json(got), {});
}

Outcome one_operation(const Json& c, const Recorded& tensors, ImageOp op, AugmentationSet set) {
  const at::Tensor image = image_of(tensors.at("in.image"));
  RecordedRandom random(c.at("random_log"));
  const ImageChange change = draw(op, c.at("level").get<double>(), set, image, random);
  return judge_image(c, tensors, algorithms::change_images(image, std::vector<ImageChange>{change}), random);
}

Outcome randaugment(const Json& c, const Recorded& tensors) {
  const at::Tensor image = image_of(tensors.at("in.image"));
  RecordedRandom random(c.at("random_log"));
  const ImageChanges changes =
      draw_chain(c.at("depth").get<std::int64_t>(), c.at("severity").get<double>(), image, random);
  return judge_image(c, tensors, algorithms::randaugment_batch(image, {changes}), random);
}

Outcome augmix(const Json& c, const Recorded& tensors) {
  const at::Tensor image = image_of(tensors.at("in.image"));
  RecordedRandom random(c.at("random_log"));
  algorithms::AugMixDraw drawn;
  drawn.weights = random.next("np.random.dirichlet").at("value").get<std::vector<double>>();
  drawn.mixing = random.next("np.random.beta").at("value").get<double>();
  for (std::size_t chain = 0; chain < drawn.weights.size(); ++chain) {
    const auto given = c.at("depth").get<std::int64_t>();
    const std::int64_t depth = given > 0 ? given : random.integer(1, 4);
    drawn.chains.push_back(draw_chain(depth, c.at("severity").get<double>(), image, random));
  }
  return judge_image(c, tensors, algorithms::augmix_batch(image, {drawn}), random);
}

}  // namespace

std::optional<Outcome> replay_augmentations(const Json& c, const Context& context) {
  const Recorded tensors(c, context);
  std::string function = c.at("function").get<std::string>();
  if (function == "randaugment_image") return randaugment(c, tensors);
  if (function == "augmix_image") return augmix(c, tensors);
  if (c.at("algorithm") != "augmentation_primitives") return std::nullopt;
  const std::size_t suffix = function.find("_original");
  const auto op = find_op(function.substr(0, suffix));
  if (!op) return std::nullopt;
  return one_operation(c, tensors, *op, suffix == std::string::npos ? AugmentationSet::ALL : AugmentationSet::ORIGINAL);
}

}  // namespace composer::replay
