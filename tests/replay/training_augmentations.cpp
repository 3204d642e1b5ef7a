#include "tests/replay/training_augmentations.h"

#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/algorithms/colout.h"
#include "composer/algorithms/cutmix.h"
#include "composer/algorithms/cutout.h"
#include "composer/algorithms/progressive_resizing.h"
#include "composer/algorithms/selective_backprop.h"

namespace composer::replay {
namespace {

at::Tensor drawn_permutation(RandomLog& log, std::int64_t n) {
  return at::tensor(log.next("torch.randperm", {n}).get<std::vector<std::int64_t>>(), at::kLong);
}

std::int64_t pixel(RandomLog& log, std::int64_t low, std::int64_t high) {
  if (low != 0) throw std::runtime_error("another lower bound was recorded");
  return log.next("np.random.randint", {high}).get<std::int64_t>();
}

void add_cutmix(Algorithms& list, const Json& o, RandomLog& log) {
  require_known(o, "CutMix", {"class", "alpha", "interpolate_loss"});
  algorithms::CutMixOptions x;
  x.alpha = o.value("alpha", x.alpha);
  x.interpolate_loss = o.value("interpolate_loss", x.interpolate_loss);
  x.draw = [alpha = x.alpha, &log](std::int64_t samples, std::int64_t height,
                                   std::int64_t width) -> algorithms::CutMixDraw {
    at::Tensor order = drawn_permutation(log, samples);
    const auto share = [&] { return log.next("np.random.beta", {alpha, alpha}).get<double>(); };
    const auto sample = [&](std::int64_t low, std::int64_t high) { return pixel(log, low, high); };
    const auto box = algorithms::cutmix_box(height, width, std::sqrt(1 - share()), /*uniform_sampling=*/false, sample);
    share();  // Composer draws another one, which it does not use
    return {std::move(order), box};
  };
  list.add(algorithms::CutMix(x));
}

void add_cutout(Algorithms& list, const Json& o, RandomLog& log) {
  require_known(o, "CutOut", {"class", "num_holes", "length"});
  algorithms::CutOutOptions x;
  x.num_holes = o.value("num_holes", x.num_holes);
  x.length = o.value("length", x.length);
  x.draw = [squares = x, &log](std::int64_t height, std::int64_t width) {
    return algorithms::cutout_holes(height, width, squares,
                                    [&](std::int64_t low, std::int64_t high) { return pixel(log, low, high); });
  };
  list.add(algorithms::CutOut(x));
}

void add_colout(Algorithms& list, const Json& o, RandomLog& log) {
  require_known(o, "ColOut", {"class", "p_row", "p_col"});
  algorithms::ColOutOptions x;
  x.p_row = o.value("p_row", x.p_row);
  x.p_col = o.value("p_col", x.p_col);
  x.draw = [p_row = x.p_row, p_col = x.p_col, &log](std::int64_t height, std::int64_t width) {
    return algorithms::colout_kept(height, width, p_row, p_col,
                                   [&](std::int64_t n) { return drawn_permutation(log, n); });
  };
  list.add(algorithms::ColOut(x));
}

void add_progressive_resizing(Algorithms& list, const Json& o, RandomLog&) {
  require_known(o, "ProgressiveResizing",
                {"class", "initial_scale", "delay_fraction", "finetune_fraction", "size_increment"});
  algorithms::ProgressiveResizingOptions x;
  x.initial_scale = o.value("initial_scale", x.initial_scale);
  x.delay_fraction = o.value("delay_fraction", x.delay_fraction);
  x.finetune_fraction = o.value("finetune_fraction", x.finetune_fraction);
  x.size_increment = o.value("size_increment", x.size_increment);
  list.add(algorithms::ProgressiveResizing(x));
}

void add_selective_backprop(Algorithms& list, const Json& o, RandomLog& log) {
  require_known(o, "SelectiveBackprop", {"class", "start", "end", "keep", "interrupt"});
  algorithms::SelectiveBackpropOptions x;
  x.start = o.value("start", x.start);
  x.end = o.value("end", x.end);
  x.keep = o.value("keep", x.keep);
  x.interrupt = o.value("interrupt", x.interrupt);
  x.choose = [&log](const std::vector<double>& weights, std::int64_t n) {
    const Json& chosen = log.next("np.random.choice", {weights.size(), n});
    return chosen.get<std::vector<std::int64_t>>();
  };
  list.add(algorithms::SelectiveBackprop(x));
}

}  // namespace

bool add_augmentation(Algorithms& list, const Json& one, RandomLog& log) {
  using Add = void (*)(Algorithms & list, const Json& o, RandomLog& log);
  static const std::map<std::string, Add> known = {{"ColOut", add_colout},
                                                   {"CutMix", add_cutmix},
                                                   {"CutOut", add_cutout},
                                                   {"ProgressiveResizing", add_progressive_resizing},
                                                   {"SelectiveBackprop", add_selective_backprop}};
  const auto found = known.find(one.at("class").get<std::string>());
  if (found == known.end()) return false;
  found->second(list, one, log);
  return true;
}

}  // namespace composer::replay
