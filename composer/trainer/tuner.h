#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/state.h"
#include "composer/kernels/products.h"
#include "composer/step/feed.h"
#include "composer/step/train_step.h"
#include "composer/trainer/tune_cache.h"

namespace composer {

// What was chosen: "threads", "1", "12.1 ms a step (2: 13 ms)".
struct TuningChoice {
  std::string setting, chosen, reason;
};
std::string to_string(const TuningChoice& choice);  // in one line

// Tries what may train this model faster here: channels-last weights (of convolutions), autocast or fp32 where the user
// allows the former, fewer threads, matrix products by our own kernels. Forward, loss and backward of one real batch
// are timed, without algorithms and without the optimizer's step; buffers, gradients, random numbers and the fields of
// the state are then as before.
class Tuner {
 public:
  // `products`: which are for our kernels, that of the innermost ProductScope; nullptr: it is not to be chosen.
  Tuner(State& state, TrainStep& step, const Feed& feed, kernels::ProductTable* products)
      : state_(state), step_(step), feed_(feed), products_(products) {}

  // `batch` is the one to try with. Leaves the fastest way in use, and in `chosen`; a way that is given there is taken
  // without trying, as a resumed run takes that of its checkpoint.
  std::vector<TuningChoice> run(Batch batch, const std::filesystem::path& cache_file, std::optional<Tuned>& chosen);

 private:
  struct Way {  // one of two
    std::string name;
    std::function<void()> use;
  };

  std::string key(const Batch& batch) const;
  void use(const Tuned& tuned);
  void set_channels_last(bool on);
  void set_autocast(bool on);
  void set_products(const kernels::ProductTable& table);
  std::optional<std::string> choose_products();
  bool has_convolutions() const;
  void step();
  double time_steps(int steps);                                               // seconds for each
  bool choose(const std::string& setting, const Way& now, const Way& other);  // true: the other one

  State& state_;
  TrainStep& step_;
  const Feed& feed_;
  kernels::ProductTable* products_;
  Precision allowed_ = Precision::FP32;
  std::vector<TuningChoice> choices_;
};

}  // namespace composer
