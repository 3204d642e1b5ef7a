#pragma once
#include <cstdint>
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
#include "composer/tuning/trials.h"
#include "composer/tuning/tune_cache.h"

namespace composer {

// What was chosen: "threads", "1", "12.1 ms a step (2: 13 ms)".
struct TuningChoice {
  std::string setting, chosen, reason;
};
COMPOSER_EXPORT std::string to_string(const TuningChoice& choice);  // in one line

std::int64_t elements_of(const Batch& batch);  // of all its tensors

// What a Tuner has found, beside the way to train.
struct TuningResult {
  std::vector<TuningChoice> choices;
  std::string key;            // of the way in the cache
  std::int64_t elements = 0;  // of the microbatch that was tried
  bool disturbed = false;     // by other programs all the time: the way is not in the cache
};

// Tries what may train this model faster here: channels-last weights (of convolutions), autocast or fp32 where the user
// allows the former, fewer threads, matrix products by our own kernels. Forward, loss and backward of one real batch
// are timed in every combination of these, without algorithms and without the optimizer's step; buffers, gradients,
// random numbers and the fields of the state are then as before.
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
  TuningResult run(Batch batch, const std::filesystem::path& cache_file, std::optional<Tuned>& chosen);
  // Tries the number of threads that is in use and another one alone, and leaves the faster one in use and in `chosen`.
  TuningResult run_threads(Batch batch, int other, Tuned& chosen);

 private:
  using Shapes = std::map<kernels::ProductShape, std::int64_t>;
  struct Way {
    bool channels_last = false, autocast = false;
    int threads = 1;
    bool own_products = false;
    bool operator==(const Way&) const = default;
  };

  std::string key(const Batch& batch) const;
  std::string shapes_key() const;
  void use(const Tuned& tuned);
  void use(const Way& way);
  bool fits(const Tuned& tuned) const;  // this machine
  Tuned find_or_measure(Batch batch, const TuneCache& cache, bool resumes);
  Tuned measure();
  void go_on_unless_stopped() const;  // throws what run() catches
  void look_at_step();                // likewise
  Shapes shapes_of_step();
  void set_channels_last(bool on);
  void set_autocast(bool on);
  void set_products(const kernels::ProductTable& table);
  void race(const std::vector<Way>& ways);
  std::vector<Way> all_ways() const;  // the one in use is the first
  bool has_convolutions() const;
  void step();
  double time_steps(int steps);  // seconds for each
  Verdict fastest(const std::vector<Way>& ways, const std::function<void(const Way&)>& use_way);
  void say(const std::vector<Way>& ways, const Verdict& verdict);

  State& state_;
  TrainStep& step_;
  const Feed& feed_;
  bool ways_;
  kernels::ProductTable* products_;
  std::function<bool()> stops_;
  std::optional<std::string> kept_products_;  // of the run that goes on
  Precision allowed_ = Precision::FP32;
  bool layouts_ = false;                         // whether there are weights that could be channels last
  std::optional<Shapes> shapes_;                 // of the products of a step
  std::map<int, kernels::ProductTable> tables_;  // what our kernels are faster for, with so many threads
  double patience_ = 0;                          // seconds for which trials that are disturbed are repeated
  TuningResult result_;
};

}  // namespace composer
