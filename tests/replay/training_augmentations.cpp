// training.json: algorithms that draw random numbers, which are those that were recorded.
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "composer/algorithms/colout.h"
#include "composer/algorithms/cutmix.h"
#include "composer/algorithms/cutout.h"
#include "composer/algorithms/mixup.h"
#include "composer/algorithms/selective_backprop.h"
#include "tests/replay/training_run.h"

namespace composer::replay {
namespace {

auto sides_of(RandomLog& log) {
  return [&log](std::int64_t low, std::int64_t high) { return log.integer(low, high); };
}

void add_mixup(Algorithms& list, const Json& o, RandomLog& log) {
  algorithms::MixUpOptions x = options_of(o, algorithms::MixUpOptions{});
  x.draw = [alpha = x.alpha, &log](std::int64_t samples) -> algorithms::MixUpDraw {
    const double mixing = algorithms::gen_mixing_coef(alpha, [&](double a, double b) -> double {
      return log.next("np.random.beta", {a, b});
    });
    return {mixing, log.permutation(samples)};
  };
  list.add(algorithms::MixUp(x));
}

void add_cutmix(Algorithms& list, const Json& o, RandomLog& log) {
  algorithms::CutMixOptions x = options_of(o, algorithms::CutMixOptions{});
  x.draw = [alpha = x.alpha, &log](std::int64_t samples, std::int64_t height,
                                   std::int64_t width) -> algorithms::CutMixDraw {
    at::Tensor order = log.permutation(samples);
    const auto share = [&] { return log.next("np.random.beta", {alpha, alpha}).get<double>(); };
    const auto box =
        algorithms::cutmix_box(height, width, std::sqrt(1 - share()), /*uniform_sampling=*/false, sides_of(log));
    share();  // Composer draws another one, which it does not use
    return {std::move(order), box};
  };
  list.add(algorithms::CutMix(x));
}

void add_cutout(Algorithms& list, const Json& o, RandomLog& log) {
  algorithms::CutOutOptions x = options_of(o, algorithms::CutOutOptions{});
  x.draw = [squares = x, &log](std::int64_t height, std::int64_t width) {
    return algorithms::cutout_holes(height, width, squares, sides_of(log));
  };
  list.add(algorithms::CutOut(x));
}

void add_colout(Algorithms& list, const Json& o, RandomLog& log) {
  algorithms::ColOutOptions x = options_of(o, algorithms::ColOutOptions{});
  x.draw = [p_row = x.p_row, p_col = x.p_col, &log](std::int64_t height, std::int64_t width) {
    return algorithms::colout_kept(height, width, p_row, p_col, [&](std::int64_t n) { return log.permutation(n); });
  };
  list.add(algorithms::ColOut(x));
}

void add_selective_backprop(Algorithms& list, const Json& o, RandomLog& log) {
  algorithms::SelectiveBackpropOptions x = options_of(o, algorithms::SelectiveBackpropOptions{});
  x.choose = [&log](const std::vector<double>& weights, std::int64_t n) {
    return log.next("np.random.choice", {weights.size(), n}).get<std::vector<std::int64_t>>();
  };
  list.add(algorithms::SelectiveBackprop(x));
}

}  // namespace

bool add_augmentation(Algorithms& list, const Json& one, RandomLog& log) {
  using Add = void (*)(Algorithms & list, const Json& o, RandomLog& log);
  static const std::map<std::string, Add> known = {{"ColOut", add_colout},
                                                   {"CutMix", add_cutmix},
                                                   {"CutOut", add_cutout},
                                                   {"MixUp", add_mixup},
                                                   {"SelectiveBackprop", add_selective_backprop}};
  const auto found = known.find(one.at("class"));
  if (found == known.end()) return false;
  found->second(list, one, log);
  return true;
}

}  // namespace composer::replay
