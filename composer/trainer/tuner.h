#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/export.h"
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
COMPOSER_EXPORT std::string to_string(const TuningChoice& choice);  // in one line

// Tries what may train this model faster here: channels-last weights (of convolutions), autocast or fp32 where the user
// allows the former, fewer threads, matrix products by our own kernels. Forward, loss and backward of one real batch
// are timed, without algorithms and without the optimizer's step; buffers, gradients, random numbers and the fields of
// the state are then as before.
class Tuner {
 public:
  struct Choices {
    bool ways = true;                           // layout, precision and threads
    kernels::ProductTable* products = nullptr;  // that of the innermost ProductScope; nullptr: not to be chosen
    std::function<bool()> stops = [] { return false; };  // asked before each step: whether to give up
  };
  Tuner(State& state, TrainStep& step, const Feed& feed, Choices choices)
      : state_(state),
        step_(step),
        feed_(feed),
        ways_(choices.ways),
        products_(choices.products),
        stops_(std::move(choices.stops)) {}

  // `batch` is the one to try with. Leaves the fastest way in use, and in `chosen`; a way that is given there is taken
  // without trying, as a resumed run takes that of its checkpoint. If it gives up, everything is as before.
  std::vector<TuningChoice> run(Batch batch, const std::filesystem::path& cache_file, std::optional<Tuned>& chosen);

 private:
  using Shapes = std::map<kernels::ProductShape, std::int64_t>;
  struct Way {  // one of two
    std::string name;
    std::function<void()> use;
  };

  std::string key(const Batch& batch) const;
  std::string shapes_key() const;
  std::vector<TuningChoice> choices();  // the products last
  void use(const Tuned& tuned);
  bool fits(const Tuned& tuned) const;  // this machine
  Tuned find_or_measure(Batch batch, const TuneCache& cache, bool resumes);
  void measure(Tuned& best);
  void go_on_unless_stopped() const;  // throws what run() catches
  void look_at_step();                // likewise
  Shapes shapes_of_step();
  void set_channels_last(bool on);
  void set_autocast(bool on);
  void set_products(const kernels::ProductTable& table);
  std::optional<std::string> choose_products();
  kernels::ProductTable choose_products(const char* setting, const Shapes& of_step, at::ScalarType type,
                                        Precision precision);
  bool has_convolutions() const;
  void step();
  double time_steps(int steps);                                               // seconds for each
  bool choose(const std::string& setting, const Way& now, const Way& other);  // true: the other one

  State& state_;
  TrainStep& step_;
  const Feed& feed_;
  bool ways_;
  kernels::ProductTable* products_;
  std::function<bool()> stops_;
  std::optional<std::string> kept_products_;  // of the run that goes on
  Precision allowed_ = Precision::FP32;
  std::optional<Shapes> shapes_;  // of the products of a step
  std::vector<TuningChoice> choices_;
};

}  // namespace composer
