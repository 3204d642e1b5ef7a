// algorithms.json: the operations on images, and what RandAugment and AugMix make of them.
#include <stdexcept>
#include <string>
#include <vector>

#include "composer/algorithms/augmix.h"
#include "composer/algorithms/image_ops.h"
#include "composer/algorithms/randaugment.h"
#include "tests/replay/algorithms.h"
#include "tests/replay/recorded.h"

namespace composer::replay {
namespace {

using algorithms::AugmentationSet;
using algorithms::ImageChange;
using algorithms::ImageChanges;
using algorithms::ImageOp;

// Recorded [H, W, C] as uint8 [1, C, H, W].
at::Tensor image_of(const at::Tensor& recorded) { return recorded.to(at::kByte).permute({2, 0, 1}).unsqueeze(0); }

ImageOp op_of(const std::string& name) {
  for (const ImageOp op : algorithms::image_ops_of(AugmentationSet::ALL))
    if (name == to_string(op)) return op;
  throw std::runtime_error("there is no operation " + name);
}

ImageChange draw(ImageOp op, double severity, AugmentationSet set, const at::Tensor& image, RandomLog& random) {
  return algorithms::draw_image_change(op, severity, set, image.size(2), image.size(3),
                                       [&](double low, double high) { return random.uniform(low, high); });
}

ImageChanges draw_chain(std::int64_t depth, double severity, const at::Tensor& image, RandomLog& random) {
  ImageChanges changes;
  for (std::int64_t step = 0; step < depth; ++step) {
    const auto name = random.next("np.random.choice").at("value").get<std::string>();
    changes.push_back(draw(op_of(name), severity, AugmentationSet::ALL, image, random));
  }
  return changes;
}

Outcome judge_image(const Json& c, const Recorded& tensors, const at::Tensor& got, const RandomLog& random) {
  if (!random.is_used_up()) return wrong("fewer random numbers were drawn than recorded");
  return judge(c, to_json(image_of(tensors.at("out.image"))), to_json(got), {});
}

// The function is that of the operation, followed by "_original" for the first set of them.
Outcome one_operation(const Json& c, const Recorded& tensors) {
  const std::string function = c.at("function");
  const std::size_t suffix = function.find("_original");
  const auto set = suffix == std::string::npos ? AugmentationSet::ALL : AugmentationSet::ORIGINAL;
  const at::Tensor image = image_of(tensors.at("in.image"));
  RandomLog random(c.at("random_log"));
  const ImageChange change = draw(op_of(function.substr(0, suffix)), c.at("level"), set, image, random);
  return judge_image(c, tensors, algorithms::change_images(image, std::vector<ImageChange>{change}), random);
}

Outcome randaugment(const Json& c, const Recorded& tensors) {
  const at::Tensor image = image_of(tensors.at("in.image"));
  RandomLog random(c.at("random_log"));
  const ImageChanges changes =
      draw_chain(c.at("depth").get<std::int64_t>(), c.at("severity").get<double>(), image, random);
  return judge_image(c, tensors, algorithms::randaugment_batch(image, {changes}), random);
}

Outcome augmix(const Json& c, const Recorded& tensors) {
  const at::Tensor image = image_of(tensors.at("in.image"));
  RandomLog random(c.at("random_log"));
  algorithms::AugMixDraw drawn;
  drawn.weights = random.next("np.random.dirichlet").at("value").get<std::vector<double>>();
  drawn.mixing = random.next("np.random.beta").at("value").get<double>();
  for (std::size_t chain = 0; chain < drawn.weights.size(); ++chain) {
    const std::int64_t given = c.at("depth");
    const std::int64_t depth = given > 0 ? given : random.integer(1, 4);
    drawn.chains.push_back(draw_chain(depth, c.at("severity").get<double>(), image, random));
  }
  return judge_image(c, tensors, algorithms::augmix_batch(image, {drawn}), random);
}

}  // namespace

Handlers augmentation_handlers() {
  Handlers all = {{"randaugment_image", randaugment}, {"augmix_image", augmix}};
  for (const ImageOp op : algorithms::image_ops_of(AugmentationSet::ALL))
    for (const char* set : {"", "_original"}) all.emplace(std::string(to_string(op)) + set, one_operation);
  return all;
}

}  // namespace composer::replay
